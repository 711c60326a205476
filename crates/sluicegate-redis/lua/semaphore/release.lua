-- Returns a lease, and leaves the line: of one who waited and went away it is not known which of the two it had.
--
-- KEYS      the leases, their costs, the line, and until when its tickets are good
-- ARGV[2]   id; [3] of one who may stand in line: its cost; otherwise ''
-- Reply     '1' and now if the lease was live; '0' and now if it has lapsed or was never there

local id, cost = ARGV[2], tonumber(ARGV[3])
local lapses = tonumber(call('ZSCORE', KEYS[1], id) or 0)
if lapses > 0 then
  leases_remove({ id })
end
if cost then
  local ticket = id .. struct.pack('<I4', cost)
  call('ZREM', KEYS[3], ticket)
  call('ZREM', KEYS[4], ticket)
end
return string.format('%s%.0f', lapses > now and '1' or '0', now)
