-- What a fixed window can do beside a check.

local function fixed_window_remaining(s, a)
  if fixed_window_is_closed(a) then
    return 0
  end
  return math.max(0, ARGV[a + 1] - (now < s.ends and s.used or 0))
end

-- A reservation is answered as a check.
local function fixed_window_lends(s, a)
  local cost = tonumber(ARGV[a + 2])
  return cost <= fixed_window_remaining(s, a), false
end

-- Takes units in any case. Before the first window there is none to charge.
local function fixed_window_spend(s, a, units)
  if now < s.ends or not fixed_window_is_closed(a) then
    fixed_window_charge(s, a, units)
  end
end

-- A window that a call opened is closed when all of it was given back.
local function fixed_window_give(s, a, units)
  s.used = s.used - units
  s.keeps_expiry = true
  if s.used == 0 and ARGV[a + 4] == 'first' then
    s.ends = 0
  end
end

local function fixed_window_refund(s, a, units)
  local give = now < s.ends and math.min(s.used, units) or 0
  if now < s.ends then
    fixed_window_give(s, a, give)
  end
  return give > 0
end

-- The pile is a window, named by its end.
local function fixed_window_record(s)
  return s.ends, s.used, 0
end

local function fixed_window_give_back(s, a, charge, most)
  if now >= s.ends or charge.pile ~= s.ends then
    return nil
  end
  local cut = pile_cut(charge, most, s.used)
  if cut then
    fixed_window_give(s, a, cut.size)
  end
  return cut
end

local function fixed_window_lower_to(s, a, charge)
  charge.height = math.min(charge.height, charge.pile == s.ends and s.used or 0)
end

local function fixed_window_counts_until(s, a, charge)
  return charge.pile
end
