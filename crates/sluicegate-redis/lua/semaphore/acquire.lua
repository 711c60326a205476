-- Takes a lease, if there is a place for it beside those that are held and those that others in line came for before.
--
-- KEYS      the leases, their costs, the line, and until when its tickets are good
-- ARGV[2]   id; [3] cost, from 1 to count; [4] count; [5] ttl; [6] how many leases are looked at to tell a wait
--     [7]   how long any ticket is good at the most
--     [8]   of one who waits: how long its ticket is to be good; [9] the most that may stand in line
-- Reply     one text: a sign, now, what leases cost, what those ahead in line cost, when enough has lapsed for this one (if it
--           was denied), when all have, how many stand in line before it, and the number of its ticket, or 0. All as it was before.
--           Signs: '1' taken, '0' not, 'f' not, and the line is full. 'h' of one who waits and holds it already: then all is as it
--           is now. And alone, as nothing was done: 'm' there are more lapsed
--           leases to be cleared away first, 'x' what is there is not ours

local id, cost, count, ttl = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local longest, life, most = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local ticket = most and id .. struct.pack('<I4', cost)
local s, why = leases_live()
if not s then
  return why
end
local ahead, rank, many = 0, nil, call('ZCARD', KEYS[3])
if many > 0 then
  line_sweep(longest)
  -- Of one who waits it matters only whether its turn has come.
  ahead, rank, many = line_ahead(ticket, ticket and count - s.sum - cost + 1 or count, longest)
  if not ahead then
    return 'x'
  end
end
-- Who waits asks again when an answer was lost, and may have its lease already. Nobody has had it in hand, so its time begins now, as its
-- holder will take it.
if ticket and call('ZSCORE', KEYS[1], id) then
  call('ZADD', KEYS[1], string.format('%.0f', now + ttl), id)
  local last = math.max(s.last, now + ttl)
  leases_expire(last)
  return string.format('h%.0f %.0f 0 0 %.0f 0 0', now, s.sum, last)
end
local sign, enough, number = '1', 0, 0
if s.sum + ahead + cost <= count then
  if cost > 1 then
    call('HSET', KEYS[2], id, cost)
    call('HINCRBY', KEYS[2], '#', cost - 1)
  end
  call('ZADD', KEYS[1], string.format('%.0f', now + ttl), id)
  leases_expire(math.max(s.last, now + ttl))
  if rank then
    call('ZREM', KEYS[3], ticket)
    call('ZREM', KEYS[4], ticket)
  end
else
  sign, enough = '0', leases_lapse(s, s.sum + math.min(ahead + cost, count) - count, tonumber(ARGV[6]))
  if rank or ticket and many < most then
    number = line_keep(ticket, rank, life, longest)
  elseif ticket then
    sign = 'f'
  end
end
return string.format('%s%.0f %.0f %.0f %.0f %.0f %d %.0f', sign, now, s.sum, ahead, enough, s.last, many, number)
