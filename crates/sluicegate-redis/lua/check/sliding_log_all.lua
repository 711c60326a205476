-- Decides a check under one sliding log with `count=all`. The log is in sliding_log.lua.
--
-- KEYS[1]   the key's state
-- ARGV[2]   the arguments of sliding_log.lua begin here
-- Reply     one string, as in check/sliding_log.lua; if the call was denied and recorded, of the
--           log after it

local key, at = KEYS[1], seconds .. ' ' .. micros .. ' '
local s, other = sliding_log_read(key, 2)
if not s then
  return 'o' .. at .. other
elseif s.due and now >= s.due then
  return 'd' .. at
end
s = sliding_log_adopt(key, s, 2)
local count, cost = tonumber(ARGV[2]), tonumber(ARGV[3])
if sliding_log_try(s, 2) then
  local reply = sliding_log_report(s, 2, cost)
  sliding_log_write(key, s, 2)
  return '1' .. at .. (reply or '')
elseif cost > count then
  return '0' .. at .. (sliding_log_report(s, 2, cost) or '')
end
sliding_log_enter(s, 2, cost)
-- The newest entries whose costs add up to the count decide any check; older ones are dropped.
local after = sliding_log_read(key, 2)
if after.used >= count then
  local index, place = sliding_log_reaching(after, after.total - count)
  if index > after.oldest or place > after.first then
    local slots = sliding_log_block(after, index)
    local kept = sliding_log_cut(slots, place - 1)
    local before = sliding_log_total(kept, 0) + sliding_log_offset(after, index)
    sliding_log_delete(after, 1, index - 1)
    local tail = after.tail
    if index > after.blocks then
      tail = kept
    else
      call('HSET', key, sliding_log_name(after, index), kept)
    end
    sliding_log_put(after, sliding_log_pack(0, before) .. sliding_log_cut(after.index, index), tail)
    after = sliding_log_read(key, 2)
  end
end
return '0' .. at .. sliding_log_report(after, 2, cost)
