-- Functions for one fixed window in a list, and for verbs other than check; see fixed_window.rs. A
-- check under one fixed window has a script of its own, check/fixed_window.lua.
--
-- KEYS      the key's state under this limit
-- ARGV[a]   tag: '1 WINDOWS ', the version of the format and the windows that are counted
--     a+1   count
--     a+2   cost
--     a+3   period, or '' for calendar windows
--     a+4   start of the first window, or 'first' if a call opens it
--     a+4,5,6   calendar: when this window began, when it ends, and when the next one ends
-- State     packed end, used .. tag, and maybe a mark
-- Formula   used = 0 if now >= end; allow if used + cost <= count
-- Reply     the state before the call; 'windows' if now is outside the given calendar windows

local function fixed_window_read(key, a)
  local raw = call('GET', key)
  if raw then
    local tag, due = string.sub(raw, 15), nil
    if tag ~= ARGV[a] then
      raw, due = state_split(raw)
      tag = string.sub(raw, 15)
    end
    if tag == ARGV[a] then
      local ends, used = struct.unpack('<dI6', raw)
      return { raw = raw, ends = ends, used = used, due = due }
    elseif string.sub(tag, 1, 2) ~= '1 ' then
      return nil, raw, due
    end
  end
  -- A state of other windows counts nothing.
  return { raw = false, is_other = raw and true, ends = 0, used = 0 }
end

-- Drops a state of other windows, so that it stays gone if the limit returns to these.
local function fixed_window_adopt(key, s)
  if s.is_other then
    call('UNLINK', key)
  end
  return s
end

local function fixed_window_is_closed(a)
  return ARGV[a + 3] ~= '' and ARGV[a + 4] ~= 'first' and now < tonumber(ARGV[a + 4])
end

-- When the current window, or the one that a call would open now, ends; nil if now is outside the
-- given calendar windows.
local function fixed_window_end(a)
  local period = tonumber(ARGV[a + 3])
  if not period then
    if now < tonumber(ARGV[a + 4]) then
      return nil
    end
    for bound = a + 5, a + 6 do
      if now < tonumber(ARGV[bound]) then
        return tonumber(ARGV[bound])
      end
    end
    return nil
  elseif ARGV[a + 4] == 'first' then
    return now + period
  end
  -- Exact below 2^53: the quotient is never rounded up to a whole number.
  return now + period - (now - tonumber(ARGV[a + 4])) % period
end

local function fixed_window_charge(s, a, cost)
  if now < s.ends then
    s.used = math.min(s.used + cost, DEBT_MAX)
    s.keeps_expiry = true
    return
  end
  s.ends = fixed_window_end(a)
  s.used = math.min(cost, DEBT_MAX)
end

local function fixed_window_try(s, a)
  local cost = tonumber(ARGV[a + 2])
  local used = now < s.ends and s.used or 0
  if used + cost > tonumber(ARGV[a + 1]) or fixed_window_is_closed(a) then
    return false
  end
  fixed_window_charge(s, a, cost)
  return true
end

-- The state of an unseen key.
local function fixed_window_blank(a)
  return struct.pack('<dI6', 0, 0) .. ARGV[a]
end

local function fixed_window_write(key, s, a)
  if s.ends == 0 and not s.due then
    call('DEL', key)
    return
  end
  local value = state_marked(struct.pack('<dI6', s.ends, s.used) .. ARGV[a], s.due)
  if s.keeps_expiry then
    call('SET', key, value, 'KEEPTTL')
  else
    call('SET', key, value, 'PX', string.format('%d', math.max(0, s.ends - now) / 1000 + slack))
  end
end
