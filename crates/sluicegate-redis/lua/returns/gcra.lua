-- The verbs of a bucket other than check: reserve, take and the returns.
--
-- ARGV a+9,10   interval    the time for one unit, in whole microseconds and parts
--      a+11     cost        in units
--      a+12     burst
--      a+13     'paced' if calls leave one after another

local CENTURY = 3153600000000000

-- Returns the time for a number of units. Exact below 2^53; beyond that it only exceeds any other
-- time.
local function gcra_time_for(a, units)
  local count, part = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 10])
  local each = ARGV[a + 9] * units
  -- In steps of 20 bits, because part * units can have 83 bits: part and rest are below 2^30, so a
  -- step needs less than 2^51.
  local whole, rest, unit = 0, 0, units < 1048576 and 1 or 1099511627776
  while unit >= 1 do
    local digits = math.floor(units / unit)
    units = units - digits * unit
    rest = rest * 1048576 + part * digits
    local carried = math.floor(rest / count)
    whole, rest, unit = whole * 1048576 + carried, rest - carried * count, unit / 1048576
  end
  return each + whole, rest
end

local function gcra_is_more(whole, part, than, than_part)
  return whole > than or whole == than and part > than_part
end

-- Returns the first duration minus the second, at least zero.
local function gcra_less(whole, part, by, by_part, count)
  if not gcra_is_more(whole, part, by, by_part) then
    return 0, 0
  elseif part >= by_part then
    return whole - by, part - by_part
  end
  return whole - by - 1, part + count - by_part
end

local function gcra_fits(s, a, whole, part)
  local due, due_part = gcra_due(s, whole, part, tonumber(ARGV[a + 1]))
  return not gcra_is_more(due, due_part, tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3]))
end

local function gcra_remaining(s, a)
  local count, burst = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 12])
  local ahead, part = gcra_due(s, 0, 0, count)
  -- Estimated with rounding, then corrected exactly.
  local left = ARGV[a + 2] - ahead + (ARGV[a + 3] - part) / count
  local guess = math.floor(left / (ARGV[a + 9] + ARGV[a + 10] / count))
  guess = math.max(0, math.min(burst, guess))
  while guess < burst and gcra_fits(s, a, gcra_time_for(a, guess + 1)) do
    guess = guess + 1
  end
  while guess > 0 and not gcra_fits(s, a, gcra_time_for(a, guess)) do
    guess = guess - 1
  end
  return guess
end

-- Charges units unconditionally. Debt is capped at a century.
local function gcra_charge(s, a, units)
  local count = tonumber(ARGV[a + 1])
  local deepest, deepest_part = ARGV[a + 2] + CENTURY, tonumber(ARGV[a + 3])
  local whole, part = gcra_time_for(a, units)
  whole, part = gcra_due(s, whole, part, count)
  if gcra_is_more(whole, part, deepest, deepest_part) then
    -- After the clock stepped back, the debt may be larger already.
    whole, part = gcra_due(s, 0, 0, count)
    if not gcra_is_more(whole, part, deepest, deepest_part) then
      whole, part = deepest, deepest_part
    end
  end
  s.at, s.part = now + whole, part
end

-- Returns whether a reservation is allowed, whether it has to wait, and for how long.
local function gcra_reserve_wait(s, a, max_wait)
  local count, cost = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 11])
  if cost > tonumber(ARGV[a + 12]) then
    return false
  end
  local due, due_part = tonumber(ARGV[a + 4]), tonumber(ARGV[a + 5])
  local for_waits = { at = s.wait_at or s.at, part = s.part }
  local wait = 0
  if not gcra_fits(s, a, due, due_part) then
    local whole, part = gcra_due(for_waits, due, due_part, count)
    whole, part = gcra_less(whole, part, tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3]), count)
    wait = part > 0 and whole + 1 or whole
  end
  if ARGV[a + 13] == 'paced' then
    local delay, part = gcra_due(for_waits, 0, 0, count)
    if part > 0 then
      delay = delay + 1
    end
    return wait == 0 and delay <= max_wait, true, delay
  end
  return wait <= max_wait, wait > 0, wait
end

local function gcra_return_time(s, by, by_part, count)
  local whole, part = gcra_due(s, 0, 0, count)
  whole, part = gcra_less(whole, part, by, by_part, count)
  s.at, s.part = now + whole, part
end

-- Returns units. A full bucket stays as it is: moving `full_at` up to now would make a later step
-- back of the clock stricter.
local function gcra_refund(s, a, units)
  local count = tonumber(ARGV[a + 1])
  local ahead, part = gcra_due(s, 0, 0, count)
  if units == 0 or ahead == 0 and part == 0 then
    return false
  end
  local returned, returned_part = gcra_time_for(a, units)
  gcra_return_time(s, returned, returned_part, count)
  return true
end

-- The stack is measured in time: its height is when the bucket is full.
local function gcra_record(s)
  return 0, s.at, s.part
end

-- Rolls back what still counts of a charge, `most` units at most. What has leaked by now, or by the
-- latest change, is not returned; and a call that had to wait returns nothing once a later call is
-- charged behind it.
local function gcra_roll_back(s, a, charge, most)
  local count = tonumber(ARGV[a + 1])
  if charge.waited and gcra_is_more(s.at, s.part, charge.height, charge.part) then
    return nil
  end
  local returned, returned_part = gcra_time_for(a, most)
  local left, left_part = gcra_less(charge.height, charge.part, math.max(now, s.latest), 0, count)
  if gcra_is_more(returned, returned_part, left, left_part) then
    returned, returned_part = left, left_part
  end
  local ahead, ahead_part = gcra_due(s, 0, 0, count)
  if gcra_is_more(returned, returned_part, ahead, ahead_part) then
    returned, returned_part = ahead, ahead_part
  end
  if returned == 0 and returned_part == 0 then
    return nil
  end
  gcra_return_time(s, returned, returned_part, count)
  return { size = returned, size_part = returned_part }
end

local function gcra_counts_until(s, a, charge)
  return charge.height + (charge.part > 0 and 1 or 0)
end
