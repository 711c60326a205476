-- A window that begins with its first call: the count, which the caller compares with the limit.
--
-- KEYS[1]  the count
-- ARGV     the window in seconds
-- Reply    the count

local count = redis.call('INCR', KEYS[1])
if count == 1 then
    redis.call('EXPIRE', KEYS[1], ARGV[1])
end
return count
