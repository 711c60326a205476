-- Converts the state of a bucket that was written at another rate, as `adopt` in gcra.rs does, and
-- precedes check/gcra.lua, so that no other process can change the state in between.
--
-- KEYS[1]   the key's state; KEYS[2] the key's receipts, which are void at the new rate
-- ARGV[2]   tag: '1 COUNT/PERIOD ', the version of the format and the new rate
--
-- Numbers of 2^53 or more are not exact here. A state that needs them stays as it is, and so does
-- one that cannot be read: the check then returns it.

do
  local EXACT, CENTURY = 9007199254740992, 3153600000000000
  -- Exact, unlike a rounded quotient.
  local function divided(number, by)
    local rest = math.fmod(number, by)
    return (number - rest) / by, rest
  end
  local function convert(raw)
    local old_count, old_period = string.match(string.sub(raw, 21), '^1 (%d+)/(%d+) $')
    local count, period = string.match(ARGV[2], '^1 (%d+)/(%d+) $')
    if not old_count then
      return
    end
    old_count, old_period, count, period = old_count + 0, old_period + 0, count + 0, period + 0
    local at, latest, part = struct.unpack('<ddI4', raw)
    -- A damaged state is not read.
    local function is_time(number)
      return number >= 0 and number < EXACT and number == math.floor(number)
    end
    if not is_time(at) or not is_time(latest) or part >= old_count or old_period == 0 then
      return
    end
    -- After a step back of the clock, usage is measured at the latest known time.
    local from = math.max(now, math.min(latest, at))
    local used = at >= from and (at - from) * old_count + part or 0
    local divisor, rest = old_period, period
    while rest > 0 do
      divisor, rest = rest, math.fmod(divisor, rest)
    end
    local factor = period / divisor
    local periods, begun = divided(used, old_period)
    if used >= EXACT or old_period * factor >= EXACT or (periods + 1) * period >= EXACT then
      return
    end
    local more, remainder = divided(begun * factor, old_period / divisor)
    -- Rounded up, so that a conversion creates no credit.
    local whole, new_part = divided(periods * period + more + (remainder > 0 and 1 or 0), count)
    if whole > CENTURY then
      return
    end
    local expiry = string.format('%d', (from + whole - now) / 1000 + slack)
    call('SET', KEYS[1], struct.pack('<ddI4', from + whole, latest, new_part) .. ARGV[2], 'PX', expiry)
    call('UNLINK', KEYS[2])
  end
  local raw = call('GET', KEYS[1])
  if raw and string.sub(raw, 21) ~= ARGV[2] then
    convert(raw)
  end
end
