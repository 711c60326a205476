-- Extends a live lease by a full ttl.
--
-- KEYS      the leases and their costs
-- ARGV[2]   the lease id
--     [3]   ttl
-- Reply     '1' and now; '0' and now if it had expired or is unknown; 'm' and 'x' as in acquire.lua

local id, ttl = ARGV[2], tonumber(ARGV[3])
local s, why = leases_live()
if not s then
  return why
end
if not call('ZSCORE', KEYS[1], id) then
  return string.format('0%.0f', now)
end
call('ZADD', KEYS[1], string.format('%.0f', now + ttl), id)
leases_keep_until(math.max(s.last, now + ttl))
return string.format('1%.0f', now)
