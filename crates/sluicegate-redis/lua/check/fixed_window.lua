-- Decides a check under one fixed window; written for speed, like check/gcra.lua. fixed_window.lua
-- has the same rules for the other verbs.
--
-- KEYS[1]   the key's state
-- ARGV[2]   tag: '1 WINDOWS ', the version of the format and the windows that are counted
--     3     packed: count, cost, period, start. Period 0: calendar windows. Start -1: a call opens
--           the window
--     4     calendar: packed: when this window began, when it ends, and when the next one ends
-- State     packed end, used .. tag, and maybe a mark: see marks.lua
-- Formula   used = 0 if now >= end; allow if used + cost <= count
-- Reply     one string: '1' or '0' for allowed or denied, the time, ' ', and the state before, if
--           there was one;
--           'o', the time, ' ', the state: it is of another version, and nothing was done;
--           'a', the time, ' ': calendar windows around it are needed, and nothing was done;
--           'd', the time, ' ': receipts may have expired, and nothing was done

local key, tag = KEYS[1], ARGV[2]
local count, cost, period, start = struct.unpack('<dddd', ARGV[3])
local raw = call('GET', key)
if raw then
  local found = string.sub(raw, 15)
  if found ~= tag and string.sub(found, 1, -10) == tag then
    if now >= struct.unpack('<d', found, #tag + 1) then
      return 'd' .. seconds .. ' ' .. micros .. ' '
    end
    tag, raw = found, string.sub(raw, 1, -10)
  end
  if found == tag then
    local ends, used = struct.unpack('<dI6', raw)
    if now < ends then
      used = used + cost
      if used > count or now < start then
        return '0' .. seconds .. ' ' .. micros .. ' ' .. raw
      end
      call('SETRANGE', key, '8', struct.pack('<I6', used))
      return '1' .. seconds .. ' ' .. micros .. ' ' .. raw
    end
  elseif string.sub(raw, 15, 16) ~= '1 ' then
    return 'o' .. seconds .. ' ' .. micros .. ' ' .. raw
  else
    -- It stays gone if the limit returns to its windows.
    call('UNLINK', key)
    raw = false
  end
end
if cost > count or now < start then
  return '0' .. seconds .. ' ' .. micros .. ' ' .. (raw or '')
end
local ends
if period == 0 then
  local began, this, next = struct.unpack('<ddd', ARGV[4])
  if now < began or now >= next then
    return 'a' .. seconds .. ' ' .. micros .. ' '
  end
  ends = now < this and this or next
elseif start < 0 then
  ends = now + period
else
  -- Exact below 2^53: the quotient is never rounded up to a whole number.
  ends = now + period - (now - start) % period
end
local expiry = string.format('%d', (ends - now) / 1000 + slack)
call('SET', key, struct.pack('<dI6', ends, cost) .. tag, 'PX', expiry)
return '1' .. seconds .. ' ' .. micros .. ' ' .. (raw or '')
