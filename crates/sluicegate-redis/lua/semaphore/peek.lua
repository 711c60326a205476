-- Decides about a lease of this cost without acquiring it.
--
-- KEYS      the leases, their costs, the queue, when its entries expire, and its costs above 1
-- ARGV[2]   cost
--     [3]   count
--     [4]   how many leases to scan at most for a wait
--     [5]   the longest ttl of a queue entry
-- Reply     as in acquire.lua, for a call that does not wait

local cost, count, ttl_max = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])
local s, why = leases_live()
if not s then
  return why
end
local waiters
waiters, why = queue_live(ttl_max)
if not waiters then
  return why
end
local ahead = queue_ahead(nil, count, waiters)
local status, enough = '1', 0
-- A cost of 0 is always allowed.
if cost > 0 and s.sum + ahead + cost > count then
  status, enough = '0', leases_free_at(s, s.sum + math.min(ahead + cost, count) - count, tonumber(ARGV[4]))
end
return string.format('%s%.0f %.0f %.0f %.0f %.0f %d 0', status, now, s.sum, ahead, enough, s.last, waiters)
