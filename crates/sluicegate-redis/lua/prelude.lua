#!lua
-- The beginning of every script: the time, and the conventions for numbers.
--
-- ARGV[1]   the time in microseconds since the Unix epoch, or '' for the server's clock
--
-- Numbers are Lua's doubles, exact for every whole number below 2^53. The caller ensures that no
-- time or duration is larger; products that can be larger are computed in steps, and say so.
-- Numbers are formatted before they are passed to a command: the server's own conversion takes
-- several times as long.
--
-- `slack` is added to every expiry, in milliseconds. An expiry only collects garbage; no decision
-- depends on it. At a given time, which has nothing to do with the server's clock, keys stay for a
-- day.
--
-- A reply that is one string, which is faster to build than a list, has the time as `seconds` and
-- `micros`.

local call, slack, seconds, micros = redis.call, 86400000, '0', ARGV[1]
if micros == '' then
  local time = call('TIME')
  slack, seconds, micros = 1000, time[1], time[2]
end
local now = seconds * 1000000 + micros

-- The most that a window or a log holds, debt included.
local DEBT_MAX = 2000000000000
