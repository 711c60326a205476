-- How a key stands, as far as it matters to a lease of this cost. Nothing is taken.
--
-- KEYS      the leases, their costs, the line, and until when its tickets are good
-- ARGV[2]   cost; [3] count; [4] how long a ticket is good; [5] how many leases are looked at to tell a wait
-- Reply     as of acquire.lua, for one who does not wait

local cost, count, life = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local s, why = leases_live()
if not s then
  return why
end
local ahead, _, many = line_ahead(nil, count, life)
if not ahead then
  return 'x'
end
local sign, enough = '1', 0
-- What costs nothing is always allowed.
if cost > 0 and s.sum + ahead + cost > count then
  sign, enough = '0', leases_lapse(s, s.sum + math.min(ahead + cost, count) - count, tonumber(ARGV[5]))
end
return string.format('%s%.0f %.0f %.0f %.0f %.0f %d', sign, now, s.sum, ahead, enough, s.last, many)
