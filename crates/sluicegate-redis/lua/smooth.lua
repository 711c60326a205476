-- Guava's limiter, as in smooth.rs: the same operations on doubles in the same order, so that not a bit differs.
--
-- KEYS      the key's state
-- ARGV[a]   tag: '1 LIMIT ', the version of what is written here and the numbers that it is written in
--     a+1   cost
--     a+2   packed: stable, max, cool_down, initial, start, threshold (-1 without a warm-up), slope
--     a+3   the longest wait
-- State     packed next, stored .. tag
-- Formula   if now > next: stored = min(max, stored + (now - next) / cool_down), next = now
--           allow if next - now is at most the longest wait
--           take = min(stored, cost); next = next + time_of(stored, take) + floor((cost - take) * stable); stored = stored - take
-- Reply     the state as it was; a state in other numbers is handed back to be read anew

-- No debt is added beyond this.
local SMOOTH_CENTURY = 3153600000000000

-- What the key holds now, and the numbers.
local function smooth_read(key, a)
  local stable, max, cool_down, initial, start, threshold, slope = struct.unpack('<ddddddd', ARGV[a + 2])
  local raw, next, stored = call('GET', key), math.min(start, now), initial
  if raw then
    if string.sub(raw, 17) ~= ARGV[a] then
      return nil, raw
    end
    next, stored = struct.unpack('<dd', raw)
  end
  if now > next then
    stored = math.min(max, stored + (now - next) / cool_down)
    next = now
  end
  return {
    raw = raw, next = next, stored = stored,
    stable = stable, max = max, cool_down = cool_down, threshold = threshold, slope = slope,
    -- While unseen keys hold less, one that has all is not forgotten.
    unseen_is_full = start + math.ceil((max - initial) * cool_down),
  }
end

-- How long it takes to use up stored permits.
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

-- Takes the cost if its time comes soon enough.
local function smooth_try(s, a)
  if s.next - now > tonumber(ARGV[a + 3]) then
    return false
  end
  local cost = tonumber(ARGV[a + 1])
  local take = math.min(s.stored, cost)
  -- What is above 2^53 here is beyond a century and cut, so that it need not be exact.
  local wait = smooth_time_of(s, take) + math.floor((cost - take) * s.stable)
  -- After a step back of the clock it may be further away already.
  s.next = math.min(s.next + wait, math.max(s.next, now + SMOOTH_CENTURY))
  s.stored = s.stored - take
  return true
end

local function smooth_write(key, s, a)
  local full = s.next + math.ceil(math.max(0, s.max - s.stored) * s.cool_down)
  local expiry = string.format('%d', (math.max(full, s.unseen_is_full) - now) / 1000 + slack)
  call('SET', key, struct.pack('<dd', s.next, s.stored) .. ARGV[a], 'PX', expiry)
end
