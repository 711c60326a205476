-- Decides a check under one bucket: token bucket, leaky bucket, minimum interval or pacer. Nearly
-- every decision comes this way, so it is written for speed: numbers are packed, and formatted by
-- hand. gcra.lua has the same rules for the other verbs.
--
-- KEYS[1]   the key's state
-- ARGV[2]   tag: '1 COUNT/PERIOD ', the version of the format and the rate of the state, reduced
--     3     packed: count, the parts of a microsecond; fill and due, each in whole microseconds
--           and parts
--     4     a bucket with `initial`: packed: start, and what an unseen key lacks then, as time
-- State     packed full_at, latest, part .. tag, and maybe a mark: see marks.lua
-- Formula   ahead = max(full_at - now, 0); allow if ahead + due <= fill;
--           then full_at = now + ahead + due
-- Reply     one string: '1' or '0' for allowed or denied, the time, ' ', and the state before, if
--           there was one;
--           'o', the time, ' ', the state: it is of another rate, and nothing was done;
--           'd', the time, ' ': receipts may have expired, and nothing was done

local unpack = struct.unpack
local key, tag = KEYS[1], ARGV[2]
local count, fill, fill_part, whole, part = unpack('<I4dI4dI4', ARGV[3])
local raw = call('GET', key)
local at, latest, at_part, recovered = -1, 0, 0, 0
if raw then
  local found = string.sub(raw, 21)
  if found ~= tag then
    if string.sub(found, 1, -10) ~= tag then
      return 'o' .. seconds .. ' ' .. micros .. ' ' .. raw
    elseif now >= unpack('<d', found, #tag + 1) then
      return 'd' .. seconds .. ' ' .. micros .. ' '
    end
    tag, raw = found, string.sub(raw, 1, -10)
  end
  at, latest, at_part = unpack('<ddI4', raw)
end
if ARGV[4] then
  local start, missing, missing_part = unpack('<ddI4', ARGV[4])
  recovered = start + missing
  if not raw then
    at, at_part = math.min(start, now) + missing, missing_part
  end
end
if at >= now then
  whole, part = whole + at - now, part + at_part
  if part >= count then
    whole, part = whole + 1, part - count
  end
end
if whole > fill or whole == fill and part > fill_part then
  return '0' .. seconds .. ' ' .. micros .. ' ' .. (raw or '')
end
at = now + whole
if latest < now then
  latest = now
end
-- While unseen keys are still filling, a full key must not be dropped.
if recovered < at then
  recovered = at
end
local expiry = string.format('%d', (recovered - now) / 1000 + slack)
call('SET', key, struct.pack('<ddI4', at, latest, part) .. tag, 'PX', expiry)
return '1' .. seconds .. ' ' .. micros .. ' ' .. (raw or '')
