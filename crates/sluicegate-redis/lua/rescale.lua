-- Durations of a bucket at another rate, as `adopt` and `adopt_recovery_time` in gcra.rs convert
-- them. A rate with period 0 keeps durations; only their parts of a microsecond change.

-- Exact, unlike a rounded quotient.
local function divided(number, by)
  local rest = math.fmod(number, by)
  return (number - rest) / by, rest
end

local function common_divisor(one, other)
  while other > 0 do
    one, other = other, math.fmod(one, other)
  end
  return one
end

-- Prepares the conversion of durations. The new rate is reduced to lowest terms, so that it does
-- not matter how it is written; a part of the duration is `unit` parts of the rate as written.
local function rate_change(count, period, new_count, new_period)
  local change = { count = count, period = period, new_count = new_count, new_period = new_period }
  if new_period == 0 then
    change.keeps_time = true
    return change
  end
  change.unit = common_divisor(new_count, new_period)
  change.reduced_count, change.reduced_period = new_count / change.unit, new_period / change.unit
  local divisor = common_divisor(period, change.reduced_period)
  change.factor, change.by = change.reduced_period / divisor, period / divisor
  return change
end

-- Converts a duration, rounded up so that a conversion creates no credit. Returns nil if a number
-- of 2^53 or more is needed, which is not exact here.
local function rescaled(change, whole, part)
  local EXACT = 9007199254740992
  if change.keeps_time then
    local count = change.new_count
    -- In two steps, because part * count can have 60 bits.
    local high = math.floor(part / 32768)
    local more, rest = divided(count * high, change.count)
    local last, remainder = divided(rest * 32768 + count * (part - high * 32768), change.count)
    part = more * 32768 + last + (remainder > 0 and 1 or 0)
    if part == count then
      return whole + 1, 0
    end
    return whole, part
  end
  local parts = whole * change.count + part
  local periods, begun = divided(parts, change.period)
  local scaled = begun * change.factor
  if parts >= EXACT or scaled >= EXACT or (periods + 1) * change.reduced_period >= EXACT then
    return nil
  end
  local more, remainder = divided(scaled, change.by)
  local new_whole, new_part =
    divided(periods * change.reduced_period + more + (remainder > 0 and 1 or 0), change.reduced_count)
  return new_whole, new_part * change.unit
end
