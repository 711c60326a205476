-- Durations of a bucket at another rate, as `adopt` and `adopt_recovery_time` in gcra.rs convert
-- them. A rate with period 0 keeps durations; only their parts of a microsecond change.

-- Exact, unlike a rounded quotient.
local function divided(number, by)
  local rest = math.fmod(number, by)
  return (number - rest) / by, rest
end

-- Prepares the conversion of durations.
local function rate_change(count, period, new_count, new_period)
  local divisor, rest = period, new_period
  while rest > 0 do
    divisor, rest = rest, math.fmod(divisor, rest)
  end
  return {
    count = count, period = period, new_count = new_count, new_period = new_period,
    factor = new_period / divisor, by = period / divisor, keeps_time = new_period == 0,
  }
end

-- Converts a duration, rounded up so that a conversion creates no credit. Returns nil if a number
-- of 2^53 or more is needed, which is not exact here.
local function rescaled(change, whole, part)
  local EXACT = 9007199254740992
  local count = change.new_count
  if change.keeps_time then
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
  if parts >= EXACT or scaled >= EXACT or (periods + 1) * change.new_period >= EXACT then
    return nil
  end
  local more, remainder = divided(scaled, change.by)
  return divided(periods * change.new_period + more + (remainder > 0 and 1 or 0), count)
end
