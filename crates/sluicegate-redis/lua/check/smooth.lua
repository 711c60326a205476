-- A check under the smooth limiter, also of a caller who would wait. The arithmetic is in smooth.lua, whose arguments begin
-- with ARGV[2].
--
-- Reply     one text, as of check/gcra.lua

local s, other = smooth_read(KEYS[1], 2)
if not s then
  return 'o' .. seconds .. ' ' .. micros .. ' ' .. other
end
if not smooth_try(s, 2) then
  return '0' .. seconds .. ' ' .. micros .. ' ' .. (s.raw or '')
end
smooth_write(KEYS[1], s, 2)
return '1' .. seconds .. ' ' .. micros .. ' ' .. (s.raw or '')
