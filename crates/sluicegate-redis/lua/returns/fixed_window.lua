-- The verbs of a fixed window other than check.

local function fixed_window_remaining(s, a)
  if fixed_window_is_closed(a) then
    return 0
  end
  return math.max(0, ARGV[a + 1] - (now < s.ends and s.used or 0))
end

-- A reservation is decided like a check.
local function fixed_window_reserve_wait(s, a)
  local cost = tonumber(ARGV[a + 2])
  return cost <= fixed_window_remaining(s, a), false
end

-- Charges units unconditionally. Before the first window there is none to charge.
local function fixed_window_spend(s, a, units)
  if now < s.ends or not fixed_window_is_closed(a) then
    fixed_window_charge(s, a, units)
  end
end

-- A window that a call opened is closed once nothing in it is charged.
local function fixed_window_return(s, a, units)
  s.used = s.used - units
  s.keeps_expiry = true
  if s.used == 0 and ARGV[a + 4] == 'first' then
    s.ends = 0
  end
end

local function fixed_window_refund(s, a, units)
  local returned = now < s.ends and math.min(s.used, units) or 0
  if now < s.ends then
    fixed_window_return(s, a, returned)
  end
  return returned > 0
end

-- The stack is a window, identified by its end.
local function fixed_window_record(s)
  return s.ends, s.used
end

local function fixed_window_roll_back(s, a, charge, most)
  if now >= s.ends or charge.stack ~= s.ends then
    return nil
  end
  local rollback = stack_roll_back(charge, most, s.used)
  if rollback then
    fixed_window_return(s, a, rollback)
  end
  return rollback
end

local function fixed_window_counts_until(s, a, charge)
  return charge.stack
end
