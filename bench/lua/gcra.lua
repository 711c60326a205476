-- A token bucket kept as one moment, in the manner of redis_rate: floating point, the server's time
-- in seconds.
--
-- KEYS[1]  the moment at which the bucket is full again ARGV     burst, count, period in seconds,
-- cost Reply    cost when allowed or else 0, remaining, retry_after and reset_after in seconds as
-- text (-1: no need to retry)

local burst = tonumber(ARGV[1])
local interval = tonumber(ARGV[3]) / tonumber(ARGV[2])
local cost = tonumber(ARGV[4])

-- Counted from 2017, so that more of a double's digits are left for the fraction of a second.
local time = redis.call('TIME')
local now = (time[1] - 1483228800) + (time[2] / 1000000)

local full_at = redis.call('GET', KEYS[1])
full_at = full_at and tonumber(full_at) or now
full_at = math.max(full_at, now)

local charged = full_at + interval * cost
local ahead = now - (charged - interval * burst)
local remaining = ahead / interval
if remaining < 0 then
    return { 0, 0, tostring(-ahead), tostring(full_at - now) }
end

local reset_after = charged - now
if reset_after > 0 then
    redis.call('SET', KEYS[1], charged, 'EX', math.ceil(reset_after))
end
return { cost, remaining, '-1', tostring(reset_after) }
