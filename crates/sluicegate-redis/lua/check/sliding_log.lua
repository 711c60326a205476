-- Decides a check under one sliding log; written for speed, like check/gcra.lua. sliding_log.lua
-- describes the state, and has the same rules for the other verbs and for long logs.
--
-- KEYS[1]   the key's state
-- ARGV[2]   packed: count, cost, period
-- Formula   allow if the costs in (now - period, now] + cost <= count
-- Reply     one string: '1' or '0' for allowed or denied, the time, ' ', and if the key is known
--           its slots: the one before the oldest call that counts, the last one, if denied that of
--           the last call that must age out before the cost fits, and that of the newest call that
--           counts if it is not the last one;
--           'o', the time, ' ', the state: it is of another period or version, or damaged, and
--           nothing was done;
--           'd', the time, ' ': receipts may have expired, and nothing was done

local key, read, text = KEYS[1], struct.unpack, string.format
local count, cost, period = read('<ddd', ARGV[2])
local raw = call('TYPE', key).ok == 'hash' and {} or call('GET', key)
if not raw then
  if cost > count then
    return '0' .. seconds .. ' ' .. micros .. ' '
  end
  local value = '1' .. struct.pack('<I4dI7I6I7I6', 2, period, 0, 0, now, cost) .. string.rep('\255', 26)
  call('SET', key, value, 'PX', text('%d', 2 * period / 1000 + slack))
  return '1' .. seconds .. ' ' .. micros .. ' '
end
local byte, sub = string.byte, string.sub
local size = #raw
if size == 0 or size > 3000 then
  ARGV[2], ARGV[3], ARGV[4] = count, cost, period
  -- A LONG LOG
end

local mark = ''
if byte(raw) ~= 49 then
  if byte(raw) ~= 33 or size < 26 then
    return 'o' .. seconds .. ' ' .. micros .. ' ' .. raw
  elseif now >= read('<d', raw, size - 12) then
    return 'd' .. seconds .. ' ' .. micros .. ' '
  end
  mark, size = sub(raw, size - 12), size - 13
end

-- The last slot in use: those after it are free.
local slots = size / 13 - 1
local filled, written_for = 0, 0
if size % 13 == 0 and slots > 1 then
  filled, written_for = read('<I4d', raw, 2)
end
if filled < 2 or filled > slots or written_for ~= period then
  return 'o' .. seconds .. ' ' .. micros .. ' ' .. raw
end
local low, high = filled - 1, slots - 1
while low < high do
  local middle = (low + high + 1) / 2
  middle = middle - middle % 1
  if byte(raw, 20 + 13 * middle) == 255 then
    high = middle - 1
  else
    low = middle
  end
end
local last = low
local latest, total = read('<I7I6', raw, 14 + 13 * last)
local at = now > latest and now or latest
local horizon = at - period

-- The oldest call that counts. It may be the first one; in a steady stream as many calls have aged
-- out as were recorded since the last rewrite. Otherwise it is found by binary search.
local first = 1
if latest <= horizon then
  first = last + 1
elseif read('<I7', raw, 27) <= horizon then
  low, high = 2, last
  local guess = last - filled + 2
  if guess > 1 and guess < last then
    if read('<I7', raw, 14 + 13 * guess) > horizon then
      high = guess
      if guess > 2 and read('<I7', raw, 13 * guess + 1) <= horizon then
        low = guess
      end
    else
      low = guess + 1
      if read('<I7', raw, 14 + 13 * low) > horizon then
        high = low
      end
    end
  end
  while low < high do
    local middle = (low + high) / 2
    middle = middle - middle % 1
    if read('<I7', raw, 14 + 13 * middle) > horizon then
      high = middle
    else
      low = middle + 1
    end
  end
  first = low
end
local base = read('<I6', raw, 13 * first + 8)
local used = total - base
local from = 13 * first + 1
local before, final = sub(raw, from, from + 12), sub(raw, 14 + 13 * last, 26 + 13 * last)
local over = used + cost - count
local is_returned = read('<I6', raw, 13 * last + 8) == total
local is_counted = used == 0 or not is_returned
if over > 0 and is_counted then
  if used == 0 or cost > count then
    return '0' .. seconds .. ' ' .. micros .. ' ' .. before .. final
  elseif read('<I6', raw, 21 + 13 * first) > base + over - 1 then
    return '0' .. seconds .. ' ' .. micros .. ' ' .. before .. final .. sub(raw, 14 + 13 * first, 26 + 13 * first)
  end
end

-- More slots are needed if more than one call must age out, or if the last call was returned and
-- another is the newest.
local more = ''
if over > 0 or not is_counted then
  local function reaching(above)
    local low, high = first, last
    while low < high do
      local middle = (low + high) / 2
      middle = middle - middle % 1
      if read('<I6', raw, 21 + 13 * middle) > above then
        high = middle
      else
        low = middle + 1
      end
    end
    return sub(raw, 14 + 13 * low, 26 + 13 * low)
  end
  if over > 0 and cost <= count then
    more = reaching(base + over - 1)
  end
  if not is_counted then
    more = more .. reaching(total - 1)
  end
  if over > 0 then
    return '0' .. seconds .. ' ' .. micros .. ' ' .. before .. final .. more
  end
end

-- A call in the same microsecond replaces the last entry, and so does one after an entry that
-- counts nothing.
local upto = (at == latest or is_returned) and last - 1 or last
if upto + 1 < slots and total < 140737488355328 then
  call('SETRANGE', key, text('%d', 26 + 13 * upto), struct.pack('<I7I6', at, total + cost))
  -- Once per period is enough: an entry matters for one period, and the expiry is two away.
  if at % period < at - latest then
    call('PEXPIRE', key, text('%d', (at + 2 * period - now) / 1000 + slack))
  end
else
  -- No slot is free: rewrite the state, with some free slots.
  local kept = sub(raw, from, 26 + 13 * upto)
  if total >= 140737488355328 then
    -- Totals are rebased long before they could exceed their 6 bytes.
    local lowered = {}
    for index = first - 1, upto do
      local entered, here = read('<I7I6', raw, 14 + 13 * index)
      lowered[#lowered + 1] = struct.pack('<I7I6', entered, here - base)
    end
    kept, total = table.concat(lowered), used
  end
  local filled = upto - first + 3
  local room = string.rep('\255', 13 * math.max(2, math.floor(filled / 8)))
  local value = (mark == '' and '1' or '!') .. struct.pack('<I4d', filled, period) .. kept
  value = value .. struct.pack('<I7I6', at, total + cost) .. room .. mark
  call('SET', key, value, 'PX', text('%d', (at + 2 * period - now) / 1000 + slack))
end
return '1' .. seconds .. ' ' .. micros .. ' ' .. before .. final .. more
