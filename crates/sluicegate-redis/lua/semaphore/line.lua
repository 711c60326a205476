-- Those who wait for a place, of all processes, in the order in which they came.
--
-- KEYS[3]   the line: a sorted set of tickets by their number
-- KEYS[4]   until when each ticket is good: a sorted set of the same tickets by that moment
--
-- A ticket is the id of the lease that it is for, and its cost in four bytes. Whoever waits asks again and again, and by that
-- its ticket stays good for `life` more microseconds; that of one who has died holds the line up no longer than that. How long, says
-- whoever waits, up to `longest`. A moment further away is from before the clock was set back, and the ticket is good no more either.

-- What those before this ticket cost together, or all in line if it is not in there, and how many they are. The sum need not be
-- right beyond `enough`. Nothing if what is there is not ours.
local function line_ahead(ticket, enough, longest)
  local rank = ticket and call('ZRANK', KEYS[3], ticket)
  local many, ahead, first = rank or call('ZCARD', KEYS[3]), 0, 0
  while first < many and ahead < enough do
    local tickets = call('ZRANGE', KEYS[3], first, math.min(first + CHUNK, many) - 1)
    local untils = call('ZMSCORE', KEYS[4], unpack(tickets))
    for i = 1, #tickets do
      if #tickets[i] ~= 20 then
        return nil
      end
      local good = tonumber(untils[i] or 0)
      if good > now and good <= now + longest then
        ahead = ahead + struct.unpack('<I4', string.sub(tickets[i], 17))
      end
    end
    first = first + #tickets
  end
  return ahead, rank or nil, many
end

-- Clears away tickets that are good no more.
local function line_sweep(longest)
  local early, late = string.format('%.0f', now), string.format('(%.0f', now + longest)
  for _, range in ipairs({ { '-inf', early }, { late, '+inf' } }) do
    local gone = call('ZRANGE', KEYS[4], range[1], range[2], 'BYSCORE', 'LIMIT', 0, CHUNK)
    if #gone > 0 then
      call('ZREM', KEYS[3], unpack(gone))
      call('ZREM', KEYS[4], unpack(gone))
    end
  end
end

-- Gives the ticket a number if it has none, and lets it be good from now on. Its number.
local function line_keep(ticket, rank, life, longest)
  -- First where it can fail: nobody has looked there yet if there was no line.
  call('ZADD', KEYS[4], string.format('%.0f', now + life), ticket)
  local number
  if rank then
    number = tonumber(call('ZSCORE', KEYS[3], ticket))
  else
    number = (call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2] or 0) + 1
    call('ZADD', KEYS[3], string.format('%.0f', number), ticket)
  end
  -- Others may be good for longer than this one.
  local expiry = string.format('%.0f', math.floor(longest / 1000) + slack)
  call('PEXPIRE', KEYS[3], expiry)
  call('PEXPIRE', KEYS[4], expiry)
  return number
end
