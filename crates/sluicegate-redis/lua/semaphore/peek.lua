-- How a key stands, as far as it matters to a lease of this cost. Nothing is taken.
--
-- KEYS      the leases, their costs, the line, and until when its tickets are good
-- ARGV[2]   cost; [3] count; [4] how many leases are looked at to tell a wait; [5] how long any ticket is good at the most
-- Reply     as of acquire.lua, for one who does not wait

local cost, count, longest = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])
local s, why = leases_live()
if not s then
  return why
end
local ahead, _, many = line_ahead(nil, count, longest)
if not ahead then
  return 'x'
end
local sign, enough = '1', 0
-- What costs nothing is always allowed.
if cost > 0 and s.sum + ahead + cost > count then
  sign, enough = '0', leases_lapse(s, s.sum + math.min(ahead + cost, count) - count, tonumber(ARGV[4]))
end
return string.format('%s%.0f %.0f %.0f %.0f %.0f %d 0', sign, now, s.sum, ahead, enough, s.last, many)
