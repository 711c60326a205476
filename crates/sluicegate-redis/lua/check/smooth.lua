-- Decides a check under `smooth`, at once or within a longest wait. The arithmetic is in
-- smooth.lua.
--
-- KEYS[1]   the key's state
-- ARGV[2]   the arguments of smooth.lua begin here
-- Reply     one string, as in check/gcra.lua

local s, other = smooth_read(KEYS[1], 2)
if not s then
  return 'o' .. seconds .. ' ' .. micros .. ' ' .. other
end
s = smooth_adopt(KEYS[1], s, 2)
if not smooth_try(s, 2) then
  return '0' .. seconds .. ' ' .. micros .. ' ' .. (s.raw or '')
end
smooth_write(KEYS[1], s, 2)
return '1' .. seconds .. ' ' .. micros .. ' ' .. (s.raw or '')
