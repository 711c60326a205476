-- Functions for one bucket (token bucket, leaky bucket, minimum interval or pacer) in a list, and
-- for verbs other than check; see gcra.rs. A check under one bucket has a script of its own,
-- check/gcra.lua.
--
-- KEYS      the key's state under this limit
-- ARGV[a]   tag: '1 COUNT/PERIOD ', the version of the format and the rate of the state, reduced
--     a+1   count       of the reduced rate: the parts of a microsecond, below 2^30
--     a+2,3 fill        the time to fill the bucket, in whole microseconds and parts
--     a+4,5 due         the time that the cost takes to recover
--     a+6   start       of a bucket with `initial`, or ''
--     a+7,8 missing     what an unseen key lacks at `start`, as time
-- State     packed full_at, latest, part .. tag, and maybe a mark
--           full_at is when the bucket is full again, latest when the state last changed
-- Formula   ahead = max(full_at - now, 0); allow if ahead + due <= fill;
--           then full_at = now + ahead + due
-- Reply     the state before the call, even of another rate

local function gcra_read(key, a)
  local raw = call('GET', key)
  if raw then
    local tag, due = string.sub(raw, 21), nil
    if tag ~= ARGV[a] then
      raw, due = state_split(raw)
      if string.sub(raw, 21) ~= ARGV[a] then
        return nil, raw, due
      end
    end
    local at, latest, part = struct.unpack('<ddI4', raw)
    return { raw = raw, at = at, latest = latest, part = part, due = due }
  end
  local start = tonumber(ARGV[a + 6])
  if not start then
    return { raw = false, at = 0, latest = 0, part = 0 }
  end
  -- Before its start a bucket holds what it holds at the start; it fills only after that.
  local missing = tonumber(ARGV[a + 7])
  return {
    raw = false,
    at = math.min(start, now) + missing,
    latest = 0,
    part = tonumber(ARGV[a + 8]),
    wait_at = start + missing,
  }
end

-- The time until the bucket would be full with a cost added.
local function gcra_due(s, whole, part, count)
  local ahead = s.at - now
  if ahead >= 0 then
    whole, part = whole + ahead, part + s.part
    if part >= count then
      whole, part = whole + 1, part - count
    end
  end
  return whole, part
end

-- Charges the cost if it fits.
local function gcra_try(s, a)
  local whole, part = gcra_due(s, tonumber(ARGV[a + 4]), tonumber(ARGV[a + 5]), tonumber(ARGV[a + 1]))
  local fill = tonumber(ARGV[a + 2])
  if whole > fill or whole == fill and part > tonumber(ARGV[a + 3]) then
    return false
  end
  s.at, s.part = now + whole, part
  return true
end

local function gcra_store(key, s, a)
  -- While unseen keys are still filling, a full key must not be dropped.
  local recovered = math.max(s.at, now, (tonumber(ARGV[a + 6]) or 0) + (tonumber(ARGV[a + 7]) or 0))
  local value = state_marked(struct.pack('<ddI4', s.at, s.latest, s.part) .. ARGV[a], s.due)
  call('SET', key, value, 'PX', string.format('%d', (recovered - now) / 1000 + slack))
end

-- The state of an unseen key, if it does not depend on the time.
local function gcra_blank(a)
  return ARGV[a + 6] == '' and struct.pack('<ddI4', 0, 0, 0) .. ARGV[a]
end

local function gcra_write(key, s, a)
  s.latest = math.max(s.latest, now)
  gcra_store(key, s, a)
end
