-- What the smooth limiter can do beside a check: give permits back, without a warm-up. The wait of whoever comes next stays.

-- Who has all that can be stored stays as it is: moving its moment up to now would make a later step back stricter.
local function smooth_refund(s, a, units)
  if units == 0 or s.stored >= s.max then
    return false
  end
  s.stored = math.min(s.max, s.stored + units)
  return true
end
