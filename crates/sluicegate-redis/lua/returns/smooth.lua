-- The refund of `smooth`, without a warm-up: returns permits. The wait of the next caller stays.

-- A full key stays as it is: moving its time up to now would make a later step back of the clock
-- stricter.
local function smooth_refund(s, a, units)
  if units == 0 or s.stored >= s.max then
    return false
  end
  s.stored = math.min(s.max, s.stored + units)
  return true
end
