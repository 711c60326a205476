#!lua
-- What every script begins with.
--
-- ARGV[1]   the time in microseconds since the Unix epoch, or '' for the server's own
--
-- Numbers are Lua's doubles, which hold every whole number below 2^53. Whoever sends a script has seen to it that no moment
-- and no length of time here is larger; products that can be larger say how they are taken. Numbers that are handed to a
-- command are formatted first: the server's own way of doing that takes several times as long.
-- `slack` is added to every expiry, in milliseconds: it is there to collect garbage, and no decision rests on it. With a time
-- of the caller's, which has nothing to do with the server's clock, keys stay for a day.
-- Replies that are one text, which is quicker to make than a list, tell the time as `seconds` and `micros`.

local call, slack, seconds, micros = redis.call, 86400000, '0', ARGV[1]
if micros == '' then
  local time = call('TIME')
  slack, seconds, micros = 1000, time[1], time[2]
end
local now = seconds * 1000000 + micros
