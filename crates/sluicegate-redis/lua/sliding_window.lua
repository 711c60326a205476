-- Functions for the sliding window; see sliding_window.rs.
--
-- KEYS      the key's state under this limit
-- ARGV[a]   tag: '1 PERIOD ', the version of the format and the windows that are counted
--     a+1   count
--     a+2   cost
--     a+3   period
-- State     packed at, prev, cur .. tag, and maybe a mark. at is when a call was last allowed; prev
--           and cur are the counts of the windows at that time, at most 2^32 - 1 each if the
--           limit's count is
-- Formula   allow if prev * (period - e) / period + cur + cost <= count, multiplied out
-- Reply     the state before the call

-- The most that a counter holds, debt included.
local function sliding_window_most(a)
  return tonumber(ARGV[a + 1]) > 4294967295 and DEBT_MAX or 4294967295
end

local function sliding_window_read(key, a)
  local raw = call('GET', key)
  local s = { raw = raw, at = 0, prev = 0, cur = 0 }
  if raw then
    local tag = string.sub(raw, 21)
    if tag ~= ARGV[a] then
      raw, s.due = state_split(raw)
      s.raw, tag = raw, string.sub(raw, 21)
    end
    if tag == ARGV[a] then
      s.at, s.prev, s.cur = struct.unpack('<dI6I6', raw)
      -- A limit with a larger count may have written it.
      local most = sliding_window_most(a)
      s.is_capped = math.max(s.prev, s.cur) > most
      s.prev, s.cur = math.min(s.prev, most), math.min(s.cur, most)
    elseif string.sub(tag, 1, 2) ~= '1 ' then
      return nil, raw, s.due
    else
      s.raw, s.is_other, s.due = false, true, nil
    end
  end
  s.stored_at, s.stored_prev, s.stored_cur = s.at, s.prev, s.cur
  -- The counters as of now, or as of the last allowed call if that is later.
  local period = tonumber(ARGV[a + 3])
  local at = math.max(now, s.at)
  local elapsed = at % period
  local began = at - elapsed
  if s.at < began then
    s.prev, s.cur = s.at >= began - period and s.cur or 0, 0
  end
  s.at, s.began, s.left = at, began, period - elapsed
  return s
end

-- Returns a product in four limbs: 20 bits each, the highest one larger. (a below 2^41, b below
-- 2^53; so no limb has more than 43 bits before it passes on its carry.)
local function sliding_window_product(a, b)
  local a0 = a % 1048576
  local a1 = (a - a0) / 1048576
  local b0 = b % 1048576
  local b1 = (b - b0) / 1048576 % 1048576
  local b2 = math.floor(b / 1099511627776)
  local r0 = a0 * b0
  local carry = math.floor(r0 / 1048576)
  local r1 = a0 * b1 + a1 * b0 + carry
  local carried = math.floor(r1 / 1048576)
  local r2 = a0 * b2 + a1 * b1 + carried
  local last = math.floor(r2 / 1048576)
  return a1 * b2 + last, r2 - last * 1048576, r1 - carried * 1048576, r0 - carry * 1048576
end

-- Returns true if a * b <= c * d, exactly.
local function sliding_window_at_most(a, b, c, d)
  local left, right = a * b, c * d
  if left < 9007199254740992 and right < 9007199254740992 then
    return left <= right
  end
  local l3, l2, l1, l0 = sliding_window_product(a, b)
  local r3, r2, r1, r0 = sliding_window_product(c, d)
  if l3 ~= r3 or l2 ~= r2 then
    return l3 < r3 or l3 == r3 and l2 < r2
  end
  return l1 < r1 or l1 == r1 and l0 <= r0
end

local function sliding_window_charge(s, a, cost)
  s.cur = math.min(s.cur + cost, sliding_window_most(a))
end

local function sliding_window_try(s, a)
  local cost = tonumber(ARGV[a + 2])
  local room = tonumber(ARGV[a + 1]) - cost - s.cur
  if room < 0 or not sliding_window_at_most(s.prev, s.left, room, tonumber(ARGV[a + 3])) then
    return false
  end
  sliding_window_charge(s, a, cost)
  return true
end

-- The state of an unseen key.
local function sliding_window_blank(a)
  return struct.pack('<dI6I6', 0, 0, 0) .. ARGV[a]
end

local function sliding_window_write(key, s, a)
  local value = state_marked(struct.pack('<dI6I6', s.at, s.prev, s.cur) .. ARGV[a], s.due)
  local period = tonumber(ARGV[a + 3])
  local faded = math.max(now, s.at - s.at % period + 2 * period)
  call('SET', key, value, 'PX', string.format('%d', (faded - now) / 1000 + slack))
end

-- Stores the counts as capped, and drops those of another period, so that a later change of the
-- limit brings nothing back.
local function sliding_window_adopt(key, s, a)
  if s.is_other then
    call('UNLINK', key)
  elseif s.is_capped then
    sliding_window_write(key, { at = s.stored_at, prev = s.stored_prev, cur = s.stored_cur, due = s.due }, a)
  end
  return s
end
