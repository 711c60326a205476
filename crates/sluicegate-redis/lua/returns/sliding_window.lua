-- What a sliding window can do beside a check.

local function sliding_window_remaining(s, a)
  local count, period = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 3])
  -- Guessed with rounding, and put right without.
  local fading = math.ceil(s.prev * s.left / period)
  while fading > 0 and sliding_window_at_most(s.prev, s.left, fading - 1, period) do
    fading = fading - 1
  end
  while not sliding_window_at_most(s.prev, s.left, fading, period) do
    fading = fading + 1
  end
  return math.max(0, count - s.cur - fading)
end

-- A reservation is answered as a check.
local function sliding_window_lends(s, a)
  return tonumber(ARGV[a + 2]) <= sliding_window_remaining(s, a), false
end

-- Giving back changes counts and not when a call was last allowed.
local function sliding_window_as_stored(s)
  s.at, s.prev, s.cur = s.stored_at, s.stored_prev, s.stored_cur
end

local function sliding_window_refund(s, a, units)
  if s.cur == 0 then
    return false
  end
  local give = math.min(s.cur, units)
  sliding_window_as_stored(s)
  s.cur = s.cur - give
  return give > 0
end

-- The pile is a window, named by when it began.
local function sliding_window_record(s, a)
  return s.at - s.at % ARGV[a + 3], s.cur, 0
end

-- Which count is that of the window that began then.
local function sliding_window_counter(at, began, period)
  local last = at - at % period
  return began == last and 'cur' or began + period == last and 'prev' or nil
end

local function sliding_window_give_back(s, a, charge, most)
  local period = tonumber(ARGV[a + 3])
  local counter = sliding_window_counter(s.stored_at, charge.pile, period)
  if not counter or charge.pile + period < s.began then
    return nil
  end
  local cut = pile_cut(charge, most, s['stored_' .. counter])
  if cut then
    sliding_window_as_stored(s)
    s[counter] = s[counter] - cut.size
  end
  return cut
end

local function sliding_window_lower_to(s, a, charge)
  local counter = sliding_window_counter(s.at, charge.pile, tonumber(ARGV[a + 3]))
  charge.height = math.min(charge.height, counter and s[counter] or 0)
end

local function sliding_window_counts_until(s, a, charge)
  return charge.pile + 2 * ARGV[a + 3]
end
