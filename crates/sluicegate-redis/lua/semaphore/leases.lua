-- The leases of a key; see concurrency.rs.
--
-- KEYS[1]   the leases: a sorted set of lease ids by expiry time
-- KEYS[2]   the costs, if any exceeds 1: a hash of lease ids to costs, for those leases only, and
--           of '#' to the sum of their costs above 1. So the cost of all leases is their number
--           plus '#'.
--
-- A lease is live while its expiry is after now. Every call first removes expired leases, at most
-- CHUNK of them. If there are more, it does nothing else and says so, and is repeated. So no
-- expired lease is ever counted.

local CHUNK = 250

-- Removes leases, at most CHUNK of them.
local function leases_remove(ids)
  call('ZREM', KEYS[1], unpack(ids))
  if call('EXISTS', KEYS[2]) == 0 then
    return
  end
  local costs, above = call('HMGET', KEYS[2], unpack(ids)), 0
  for i = 1, #ids do
    above = above + (costs[i] or 1) - 1
  end
  if above > 0 then
    call('HDEL', KEYS[2], unpack(ids))
    if call('HINCRBY', KEYS[2], '#', string.format('%.0f', -above)) <= 0 then
      call('UNLINK', KEYS[2])
    end
  end
end

-- Removes expired leases. Returns the state of the others: the sum of their costs, whether any cost
-- exceeds 1, and the last expiry. If that is impossible, returns nil and the status that says why.
local function leases_live()
  local last, above = call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES'), call('HGET', KEYS[2], '#')
  if not last[1] then
    -- Costs without leases are left over from a key that the server evicted.
    if above then
      call('UNLINK', KEYS[2])
    end
    return { sum = 0, has_costs = false, last = 0 }
  end
  local is_time = last[2] + 0 > 0 and last[2] + 0 < 9007199254740992
  if #last[1] ~= 16 or not is_time or above and not tonumber(above) then
    return nil, 'x'
  end
  local expired = call('ZRANGE', KEYS[1], '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, CHUNK)
  if #expired > 0 then
    leases_remove(expired)
    above = call('HGET', KEYS[2], '#')
  end
  if #expired == CHUNK then
    return nil, 'm'
  end
  local number = call('ZCARD', KEYS[1])
  return { sum = number + (above or 0), has_costs = above ~= false, last = number > 0 and tonumber(last[2]) or 0 }
end

-- Returns when leases of this cost will have expired; or when all will have, if that would take
-- scanning more than `most` leases.
local function leases_free_at(s, cost, most)
  if cost >= s.sum or not s.has_costs and cost > most then
    return s.last
  end
  if not s.has_costs then
    return tonumber(call('ZRANGE', KEYS[1], cost - 1, cost - 1, 'WITHSCORES')[2])
  end
  local freed = 0
  for first = 0, most - 1, CHUNK do
    local ids = call('ZRANGE', KEYS[1], first, math.min(first + math.min(cost, CHUNK), most) - 1)
    if #ids == 0 then
      return s.last
    end
    local costs = call('HMGET', KEYS[2], unpack(ids))
    for i = 1, #ids do
      freed = freed + (costs[i] or 1)
      if freed >= cost then
        return tonumber(call('ZSCORE', KEYS[1], ids[i]))
      end
    end
  end
  return s.last
end

-- Keeps the keys until the last lease expires.
local function leases_keep_until(last)
  local expiry = string.format('%.0f', math.floor(math.max(0, last - now) / 1000) + slack)
  call('PEXPIRE', KEYS[1], expiry)
  call('PEXPIRE', KEYS[2], expiry)
end
