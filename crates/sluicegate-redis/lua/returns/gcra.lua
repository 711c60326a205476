-- The verbs of a bucket other than check: reserve, take and the returns.
--
-- ARGV a+9,10   interval    the time for one unit, in whole microseconds and parts
--      a+11     cost        in units
--      a+12     burst
--      a+13     'paced' if calls leave one after another

local CENTURY, EXACT = 3153600000000000, 9007199254740992

-- Returns the time for a number of units of a rate, whose interval is given. Exact below 2^53;
-- beyond that it only exceeds any other time.
local function gcra_time(count, interval, part, units)
  local each = interval * units
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

local function gcra_time_for(a, units)
  return gcra_time(tonumber(ARGV[a + 1]), tonumber(ARGV[a + 9]), tonumber(ARGV[a + 10]), units)
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

-- Returns the units of a rate that a time is long enough for, rounded up.
local function gcra_units(count, interval, part, time, time_part)
  -- Estimated with rounding, then corrected exactly.
  local units = math.floor((time + time_part / count) / (interval + part / count))
  while units < EXACT and gcra_is_more(time, time_part, gcra_time(count, interval, part, units)) do
    units = units + 1
  end
  return units
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

-- The stack has a reference: a height, and the moment at which the bucket is full if it is charged
-- up to there. A unit of the stack takes the interval, so other heights are measured from the
-- reference; how much the bucket recovers below them does not matter. Where the distance is not a
-- whole number of units, because debt stopped at a century, it is rounded up: lower heights then
-- leak sooner, and a return creates no credit.

-- Moves the reference to the present height of the stack. Returns the stack and that height.
local function gcra_record(s, a, limit, number)
  local count, interval, part = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 9]), tonumber(ARGV[a + 10])
  local is_new = limit.stack < 0 or gcra_is_more(limit.at, limit.part, s.at, s.part)
  -- If all up to the reference has leaked, the stack grows only by what has not.
  local time, time_part = gcra_due(s, 0, 0, count)
  local since, since_part = gcra_less(s.at, s.part, limit.at, limit.part, count)
  if not is_new and gcra_is_more(time, time_part, since, since_part) then
    time, time_part = since, since_part
  end
  local units = gcra_units(count, interval, part, time, time_part)
  local stack, height = limit.stack, limit.reference + units
  if is_new or height >= EXACT then
    stack, height = number, math.min(units, EXACT / 2)
  end
  limit.reference, limit.at, limit.part = height, s.at, s.part
  return stack, height
end

-- Lowers the reference to the present height of the stack, if it is above. Returns the stack and
-- the height of the reference.
local function gcra_lower(s, a, limit)
  local count = tonumber(ARGV[a + 1])
  local time, part = gcra_less(limit.at, limit.part, s.at, s.part, count)
  if time > 0 or part > 0 then
    local ahead, ahead_part = gcra_due(s, 0, 0, count)
    local units = limit.reference
    if ahead > 0 or ahead_part > 0 then
      units = gcra_units(count, tonumber(ARGV[a + 9]), tonumber(ARGV[a + 10]), time, part)
    end
    limit.reference, limit.at, limit.part = math.max(0, limit.reference - units), s.at, s.part
  end
  return limit.stack, limit.reference
end

-- Moves the reference along with a bucket's state, which is converted from one rate to another.
local function gcra_move(limit, count, period, old, new)
  local since, since_part = gcra_less(old.at, old.part, limit.at, limit.part, count)
  local interval = math.floor(period / count)
  limit.reference = limit.reference + gcra_units(count, interval, period - interval * count, since, since_part)
  -- If all up to the reference has leaked, no charge counts any more.
  if limit.at < now or gcra_is_more(limit.at, limit.part, old.at, old.part) or limit.reference >= EXACT then
    limit.stack, limit.height = -1, 0
  end
  limit.at, limit.part = new.at, new.part
end

-- Returns the moment at which a charge of the last stack has leaked.
local function gcra_leaks_at(a, charge, limit)
  local whole, part = gcra_time_for(a, limit.reference - charge.height)
  return gcra_less(limit.at, limit.part, whole, part, tonumber(ARGV[a + 1]))
end

-- Rolls back what still counts of a charge, `most` units at most. What has leaked by now, or by the
-- latest change, is not returned; and a call that had to wait returns nothing once a later call is
-- charged behind it.
local function gcra_roll_back(s, a, charge, most, limit)
  local count = tonumber(ARGV[a + 1])
  -- A reference of another rate was written before the state was dropped.
  if charge.stack ~= limit.stack or limit.part >= count then
    return nil
  end
  local whole, part = gcra_leaks_at(a, charge, limit)
  if charge.waited and gcra_is_more(s.at, s.part, whole, part) then
    return nil
  end
  local size = math.min(most, charge.height)
  local returned, returned_part = gcra_time_for(a, size)
  local left, left_part = gcra_less(whole, part, math.max(now, s.latest), 0, count)
  local ahead, ahead_part = gcra_due(s, 0, 0, count)
  if gcra_is_more(left, left_part, ahead, ahead_part) then
    left, left_part = ahead, ahead_part
  end
  if gcra_is_more(returned, returned_part, left, left_part) then
    returned, returned_part, size = left, left_part, charge.height
  end
  if returned == 0 and returned_part == 0 then
    return nil
  end
  gcra_return_time(s, returned, returned_part, count)
  limit.reference = limit.reference - size
  limit.at, limit.part = gcra_less(limit.at, limit.part, returned, returned_part, count)
  return size
end

local function gcra_counts_until(s, a, charge, limit)
  if charge.stack ~= limit.stack then
    return 0
  end
  local whole, part = limit.at, limit.part
  if charge.height ~= limit.reference then
    whole, part = gcra_leaks_at(a, charge, limit)
  end
  return whole + (part > 0 and 1 or 0)
end
