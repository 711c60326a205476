-- Acquires a lease if a permit is free: beside the leases that are held, and beside the waiters
-- ahead.
--
-- KEYS      the leases, their costs, the queue, when its entries expire, and its costs above 1
-- ARGV[2]   the lease id
--     [3]   cost, from 1 to count
--     [4]   count
--     [5]   ttl
--     [6]   how many leases to scan at most for a wait
--     [7]   the longest ttl of a queue entry
--     [8]   a waiter: the ttl of its entry
--     [9]   a waiter: the most entries in the queue
-- Reply     one string: a status, now, the cost of the leases, the cost of the waiters ahead, when
--           enough leases have expired for this one (if it was denied), when all have, the number
--           of waiters ahead, and the sequence number of its entry, or 0. All before the call.
-- Status    '1' granted; '0' denied; 'f' denied, and the queue is full; 'h' a waiter that already
--           holds its lease, with all values as of now.
--           Alone, if nothing was done: 'm' more expired leases or entries must be removed first;
--           'x' the data is not ours.

local id, cost, count, ttl = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local ttl_max, entry_ttl, max_queue = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local entry = max_queue and id .. struct.pack('<I6', cost)
local s, why = leases_live()
if not s then
  return why
end
local waiters
waiters, why = queue_live(ttl_max)
if not waiters then
  return why
end
-- A waiter only needs to know whether it is next.
local ahead, rank, queued = queue_ahead(entry, entry and count - s.sum - cost + 1 or count, waiters)
-- A waiter polls again after a lost reply, and may hold its lease already. No caller has received
-- it, so its ttl starts now, as its holder will assume.
if entry and call('ZSCORE', KEYS[1], id) then
  call('ZADD', KEYS[1], string.format('%.0f', now + ttl), id)
  local last = math.max(s.last, now + ttl)
  leases_keep_until(last)
  return string.format('h%.0f %.0f 0 0 %.0f 0 0', now, s.sum, last)
end
local status, enough, sequence = '1', 0, 0
if s.sum + ahead + cost <= count then
  if cost > 1 then
    call('HSET', KEYS[2], id, cost)
    call('HINCRBY', KEYS[2], '#', cost - 1)
  end
  call('ZADD', KEYS[1], string.format('%.0f', now + ttl), id)
  leases_keep_until(math.max(s.last, now + ttl))
  if rank then
    queue_remove({ entry })
  end
else
  status, enough = '0', leases_free_at(s, s.sum + math.min(ahead + cost, count) - count, tonumber(ARGV[6]))
  if rank or entry and waiters < max_queue then
    sequence = queue_keep(entry, queued, entry_ttl, ttl_max)
  elseif entry then
    status = 'f'
  end
end
return string.format('%s%.0f %.0f %.0f %.0f %.0f %d %.0f', status, now, s.sum, ahead, enough, s.last, rank or waiters, sequence)
