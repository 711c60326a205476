-- A check under one sliding log that counts denied calls too. The log is in sliding_log.lua, whose arguments begin with ARGV[2].
--
-- Reply     one text, as of check/sliding_log.lua; if the call was denied and entered, of the log after that

local key, told_at = KEYS[1], seconds .. ' ' .. micros .. ' '
local s, other = sliding_log_read(key, 2)
if not s then
  return 'o' .. told_at .. other
end
local count, cost = tonumber(ARGV[2]), tonumber(ARGV[3])
if sliding_log_try(s, 2) then
  local told = sliding_log_told(s, 2, cost)
  sliding_log_write(key, s, 2)
  return '1' .. told_at .. (told or '')
elseif cost > count then
  return '0' .. told_at .. (sliding_log_told(s, 2, cost) or '')
end
sliding_log_enter(s, 2, cost)
-- The newest entries that add up to the count are enough to answer any check: those before are dropped.
local after = sliding_log_read(key, 2)
if after.total - count >= after.base then
  local first = sliding_log_reaching(after, after.total - count)
  if first > after.first then
    local kept = sliding_log_bytes(after, first - 1, after.last)
    call('SET', key, sliding_log_state(kept, tonumber(ARGV[4])), 'KEEPTTL')
    after = sliding_log_read(key, 2)
  end
end
return '0' .. told_at .. sliding_log_told(after, 2, cost)
