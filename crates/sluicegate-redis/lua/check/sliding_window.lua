-- Decides a check under one sliding window. The arithmetic is in sliding_window.lua.
--
-- KEYS[1]   the key's state
-- ARGV[2]   the arguments of sliding_window.lua begin here
-- Reply     one string, as in check/gcra.lua

local s, other = sliding_window_read(KEYS[1], 2)
if not s then
  return 'o' .. seconds .. ' ' .. micros .. ' ' .. other
elseif s.due and now >= s.due then
  return 'd' .. seconds .. ' ' .. micros .. ' '
end
if not sliding_window_try(s, 2) then
  sliding_window_adopt(KEYS[1], s, 2)
  return '0' .. seconds .. ' ' .. micros .. ' ' .. (s.raw or '')
end
sliding_window_write(KEYS[1], s, 2)
return '1' .. seconds .. ' ' .. micros .. ' ' .. (s.raw or '')
