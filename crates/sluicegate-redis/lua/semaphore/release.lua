-- Releases a lease and leaves the queue: it is not known which of the two a dropped waiter had.
--
-- KEYS      the leases, their costs, the queue, when its entries expire, and its costs above 1
-- ARGV[2]   the lease id
--     [3]   the cost of a call that may be in the queue, or ''
-- Reply     '1' and now if the lease was live; '0' and now if it had expired or is unknown

local id, cost = ARGV[2], tonumber(ARGV[3])
local expires = tonumber(call('ZSCORE', KEYS[1], id) or 0)
if expires > 0 then
  leases_remove({ id })
end
if cost then
  queue_remove({ id .. struct.pack('<I6', cost) })
end
return string.format('%s%.0f', expires > now and '1' or '0', now)
