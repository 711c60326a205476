-- The queue of waiters for a permit, of all processes: first in, first out.
--
-- KEYS[3]   the queue: a sorted set of entries by sequence number
-- KEYS[4]   a sorted set of the same entries by expiry time
--
-- An entry is the lease id of a waiter, and its cost in four bytes. A waiter polls, and each poll
-- extends its entry by `entry_ttl`, so that a dead waiter holds up the queue no longer than that.
-- The waiter picks the ttl, up to `ttl_max`. An expiry further away is from before the clock was
-- set back, and does not count either.

-- Returns the cost of the waiters ahead of this entry, or of all if it is not in the queue, and
-- their number. The cost need not be exact beyond `enough`. Returns nil if the data is not ours.
local function queue_ahead(entry, enough, ttl_max)
  local rank = entry and call('ZRANK', KEYS[3], entry)
  local waiters, ahead, first = rank or call('ZCARD', KEYS[3]), 0, 0
  while first < waiters and ahead < enough do
    local entries = call('ZRANGE', KEYS[3], first, math.min(first + CHUNK, waiters) - 1)
    local expiries = call('ZMSCORE', KEYS[4], unpack(entries))
    for i = 1, #entries do
      if #entries[i] ~= 20 then
        return nil
      end
      local expires = tonumber(expiries[i] or 0)
      if expires > now and expires <= now + ttl_max then
        ahead = ahead + struct.unpack('<I4', string.sub(entries[i], 17))
      end
    end
    first = first + #entries
  end
  return ahead, rank or nil, waiters
end

-- Removes expired entries.
local function queue_remove_expired(ttl_max)
  local early, late = string.format('%.0f', now), string.format('(%.0f', now + ttl_max)
  for _, range in ipairs({ { '-inf', early }, { late, '+inf' } }) do
    local expired = call('ZRANGE', KEYS[4], range[1], range[2], 'BYSCORE', 'LIMIT', 0, CHUNK)
    if #expired > 0 then
      call('ZREM', KEYS[3], unpack(expired))
      call('ZREM', KEYS[4], unpack(expired))
    end
  end
end

-- Adds the entry unless it is in the queue, extends its expiry, and returns its sequence number.
local function queue_keep(entry, rank, entry_ttl, ttl_max)
  -- First the write that can fail: without a queue, no call has looked at this key yet.
  call('ZADD', KEYS[4], string.format('%.0f', now + entry_ttl), entry)
  local sequence
  if rank then
    sequence = tonumber(call('ZSCORE', KEYS[3], entry))
  else
    sequence = (call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2] or 0) + 1
    call('ZADD', KEYS[3], string.format('%.0f', sequence), entry)
  end
  -- Other entries may expire later than this one.
  local expiry = string.format('%.0f', math.floor(ttl_max / 1000) + slack)
  call('PEXPIRE', KEYS[3], expiry)
  call('PEXPIRE', KEYS[4], expiry)
  return sequence
end
