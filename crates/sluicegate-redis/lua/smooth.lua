-- Functions for Guava's limiter; see smooth.rs. The same operations on doubles in the same order,
-- so that the results are identical to the last bit.
--
-- KEYS      the key's state
-- ARGV[a]   tag: '1 LIMIT ', the version of the format and the limit that the state is stored for
--     a+1   cost
--     a+2   packed: stable, max, cool_down, initial, start, threshold (-1 without a warm-up), slope
--     a+3   the longest wait
-- State     packed next, stored, max, cool_down .. tag
-- Formula   if now > next: stored = min(max, stored + (now - next) / cool_down), next = now
--           allow if next - now is at most the longest wait
--           take = min(stored, cost); stored = stored - take
--           next = next + time_of(stored, take) + floor((cost - take) * stable)
-- Reply     the state before the call, even of another limit; one of another version is returned

-- The most debt, in microseconds.
local SMOOTH_CENTURY = 3153600000000000

-- Returns the key's state as of now, and the parameters. A state of another limit is converted, as
-- `adopt` in smooth.rs does; a script that changes state writes it at once.
local function smooth_read(key, a)
  local stable, max, cool_down, initial, start, threshold, slope = struct.unpack('<ddddddd', ARGV[a + 2])
  local raw, next, stored = call('GET', key), math.min(start, now), initial
  local old_max, old_cool_down = max, cool_down
  local is_other = raw and string.sub(raw, 33) ~= ARGV[a]
  if raw then
    if is_other and string.sub(raw, 33, 34) ~= '1 ' then
      return nil, raw
    end
    next, stored, old_max, old_cool_down = struct.unpack('<dddd', raw)
  end
  if now > next then
    stored = math.min(old_max, stored + (now - next) / old_cool_down)
    next = now
  end
  if is_other then
    stored = stored * max / old_max
  end
  return {
    raw = raw, is_other = is_other, next = next, stored = stored,
    stable = stable, max = max, cool_down = cool_down, threshold = threshold, slope = slope,
    -- While unseen keys hold less, a full key must not be dropped.
    unseen_is_full = start + math.ceil((max - initial) * cool_down),
  }
end

-- Returns the time that stored permits take.
local function smooth_time_of(s, take)
  if s.threshold < 0 then
    return 0
  end
  local above = s.stored - s.threshold
  if above <= 0 then
    return math.floor(s.stable * take)
  end
  local high = math.min(above, take)
  local length = (s.stable + above * s.slope) + (s.stable + (above - high) * s.slope)
  return math.floor(high * length / 2) + math.floor(s.stable * (take - high))
end

-- Charges the cost if its wait is short enough.
local function smooth_try(s, a)
  if s.next - now > tonumber(ARGV[a + 3]) then
    return false
  end
  local cost = tonumber(ARGV[a + 1])
  local take = math.min(s.stored, cost)
  -- A value above 2^53 exceeds a century and is capped, so that it need not be exact.
  local wait = smooth_time_of(s, take) + math.floor((cost - take) * s.stable)
  -- After the clock stepped back, `next` may be further away already.
  s.next = math.min(s.next + wait, math.max(s.next, now + SMOOTH_CENTURY))
  s.stored = s.stored - take
  return true
end

local function smooth_write(key, s, a)
  local full = s.next + math.ceil(math.max(0, s.max - s.stored) * s.cool_down)
  local expiry = string.format('%d', (math.max(full, s.unseen_is_full) - now) / 1000 + slack)
  call('SET', key, struct.pack('<dddd', s.next, s.stored, s.max, s.cool_down) .. ARGV[a], 'PX', expiry)
end

-- Stores a state that was converted from another limit.
local function smooth_adopt(key, s, a)
  if s.is_other then
    smooth_write(key, s, a)
  end
  return s
end
