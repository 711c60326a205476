-- A log in a sorted set: a member for each allowed call, scored by its time in microseconds.
--
-- KEYS[1]  the sorted set ARGV     the limit, the window in microseconds, a member that no other
-- call has ('' for the time itself) Reply    1 when allowed or else 0, remaining

local limit = tonumber(ARGV[1])
local window = tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - window)
local held = redis.call('ZCARD', KEYS[1])
if held >= limit then
    return { 0, 0 }
end

local score = string.format('%.0f', now)
redis.call('ZADD', KEYS[1], score, ARGV[3] ~= '' and ARGV[3] or score)
redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000))
return { 1, limit - held - 1 }
