-- The verbs of a sliding window other than check.

local function sliding_window_remaining(s, a)
  local count, period = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 3])
  -- Estimated with rounding, then corrected exactly.
  local fading = math.ceil(s.prev * s.left / period)
  while fading > 0 and sliding_window_at_most(s.prev, s.left, fading - 1, period) do
    fading = fading - 1
  end
  while not sliding_window_at_most(s.prev, s.left, fading, period) do
    fading = fading + 1
  end
  return math.max(0, count - s.cur - fading)
end

-- A reservation is decided like a check.
local function sliding_window_reserve_wait(s, a)
  return tonumber(ARGV[a + 2]) <= sliding_window_remaining(s, a), false
end

-- A return changes the counts, not when a call was last allowed.
local function sliding_window_as_stored(s)
  s.at, s.prev, s.cur = s.stored_at, s.stored_prev, s.stored_cur
end

local function sliding_window_refund(s, a, units)
  if s.cur == 0 then
    return false
  end
  local returned = math.min(s.cur, units)
  sliding_window_as_stored(s)
  s.cur = s.cur - returned
  return returned > 0
end

-- The stack is a window, identified by its start.
local function sliding_window_record(s, a)
  return s.at - s.at % ARGV[a + 3], s.cur
end

-- Returns the counter of the window that began then.
local function sliding_window_counter(at, began, period)
  local last = at - at % period
  return began == last and 'cur' or began + period == last and 'prev' or nil
end

local function sliding_window_roll_back(s, a, charge, most)
  local period = tonumber(ARGV[a + 3])
  local counter = sliding_window_counter(s.stored_at, charge.stack, period)
  if not counter or charge.stack + period < s.began then
    return nil
  end
  local rollback = stack_roll_back(charge, most, s['stored_' .. counter])
  if rollback then
    sliding_window_as_stored(s)
    s[counter] = s[counter] - rollback
  end
  return rollback
end

local function sliding_window_counts_until(s, a, charge)
  return charge.stack + 2 * ARGV[a + 3]
end
