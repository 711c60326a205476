-- The leases of a key. As in concurrency.rs.
--
-- KEYS[1]   who holds places: a sorted set of a lease's id by the moment at which it lapses
-- KEYS[2]   what leases cost, if any costs more than 1: a hash of such a lease's id to its cost, and of '#' to the sum of what
--           these cost above 1. So all leases together cost their number and '#'.
--
-- A lease is live while its moment is after now. Whoever asks clears away what has lapsed, at most CHUNK leases in one call: if
-- there are more, it does nothing else, says so, and is asked again. So none that has lapsed is ever counted.

local CHUNK = 1000

-- What each of these leases costs.
local function costs_of(ids)
  local costs = call('HMGET', KEYS[2], unpack(ids))
  for i = 1, #ids do
    costs[i] = tonumber(costs[i] or 1)
  end
  return costs
end

-- Takes leases out, at most CHUNK of them.
local function leases_remove(ids)
  call('ZREM', KEYS[1], unpack(ids))
  if call('EXISTS', KEYS[2]) == 0 then
    return
  end
  local above = -#ids
  for _, cost in ipairs(costs_of(ids)) do
    above = above + cost
  end
  if above > 0 then
    call('HDEL', KEYS[2], unpack(ids))
    if call('HINCRBY', KEYS[2], '#', string.format('%.0f', -above)) <= 0 then
      call('UNLINK', KEYS[2])
    end
  end
end

-- Clears away what has lapsed. Then what is out: the sum of the costs, whether any of them is above 1, and when the last lease
-- lapses. If that cannot be told, the sign of the reply that says why.
local function leases_live()
  local last, above = call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES'), call('HGET', KEYS[2], '#')
  if not last[1] then
    -- Costs without leases are what is left of a key that the server threw out.
    if above then
      call('UNLINK', KEYS[2])
    end
    return { sum = 0, has_costs = false, last = 0 }
  end
  local is_moment = last[2] + 0 > 0 and last[2] + 0 < 9007199254740992
  if #last[1] ~= 16 or not is_moment or above and not tonumber(above) then
    return nil, 'x'
  end
  local lapsed = call('ZRANGE', KEYS[1], '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, CHUNK)
  if #lapsed > 0 then
    leases_remove(lapsed)
    above = call('HGET', KEYS[2], '#')
  end
  if #lapsed == CHUNK then
    return nil, 'm'
  end
  local number = call('ZCARD', KEYS[1])
  return { sum = number + (above or 0), has_costs = above ~= false, last = number > 0 and tonumber(last[2]) or 0 }
end

-- When so much of what is held will have lapsed; when all has, if that would take more leases than are to be looked at.
local function leases_lapse(s, cost, most)
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
    for i, each in ipairs(costs_of(ids)) do
      freed = freed + each
      if freed >= cost then
        return tonumber(call('ZSCORE', KEYS[1], ids[i]))
      end
    end
  end
  return s.last
end

-- Lets the keys stay until the last lease has lapsed.
local function leases_expire(last)
  local expiry = string.format('%.0f', math.floor(math.max(0, last - now) / 1000) + slack)
  call('PEXPIRE', KEYS[1], expiry)
  call('PEXPIRE', KEYS[2], expiry)
end
