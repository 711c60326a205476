-- The queue of waiters for a permit, of all processes: first in, first out.
--
-- KEYS[3]   the queue: a sorted set of entries by sequence number
-- KEYS[4]   a sorted set of the same entries by expiry time
-- KEYS[5]   the costs above 1, so that any prefix of the queue is summed in O(log n). For each bit
--           that is set in `cost - 1`: the entry and the bit's number in one byte, by that number
--           times ZONE plus the sequence number. So the cost of waiters is their number, plus for
--           each bit its value times the number of members in its zone.
--
-- An entry is the lease id of a waiter, and its cost in six bytes. A waiter polls, and each poll
-- extends its entry by `entry_ttl`, so that a dead waiter holds up the queue no longer than that.
-- The waiter picks the ttl, up to `ttl_max`. An expiry further away is from before the clock was
-- set back, and counts as over.
--
-- Calls that read the queue first remove expired entries, at most CHUNK of them, and about as many
-- members of KEYS[5]. If there are more, they do nothing else, say so, and are repeated.

-- No sequence number reaches ZONE, and no cost has more bits: 40 zones end below 2^53.
local ZONE, TOP_BIT = 140737488355328, 39

-- Appends the members of KEYS[5] for an entry; each after its score if `sequence` is given.
local function add_bits(list, entry, sequence)
  local above = struct.unpack('<I6', string.sub(entry, 17)) - 1
  while above > 0 do
    local _, bits = math.frexp(above)
    if sequence then
      list[#list + 1] = string.format('%.0f', (bits - 1) * ZONE + sequence)
    end
    list[#list + 1] = entry .. string.char(bits - 1)
    above = above - 2 ^ (bits - 1)
  end
end

-- Removes the first of these entries, until more than CHUNK members of KEYS[5] are removed too.
-- Returns how many.
local function queue_remove(entries)
  local removed, bits = {}, {}
  for i, entry in ipairs(entries) do
    if #bits > CHUNK then
      break
    end
    removed[i] = entry
    add_bits(bits, entry)
  end
  call('ZREM', KEYS[3], unpack(removed))
  call('ZREM', KEYS[4], unpack(removed))
  if #bits > 0 then
    call('ZREM', KEYS[5], unpack(bits))
  end
  return #removed
end

-- Removes expired entries. Returns the number of the others, or nil and the status that says why
-- that is impossible.
local function queue_live(ttl_max)
  local waiters = call('ZCARD', KEYS[3])
  if waiters == 0 then
    return 0
  end
  if waiters ~= call('ZCARD', KEYS[4]) then
    -- The server evicted one of the keys. The waiters enter a new queue when they poll.
    call('UNLINK', KEYS[3], KEYS[4], KEYS[5])
    return 0
  end
  local early, late = string.format('%.0f', now), string.format('(%.0f', now + ttl_max)
  for _, range in ipairs({ { '-inf', early }, { late, '+inf' } }) do
    local expired = call('ZRANGE', KEYS[4], range[1], range[2], 'BYSCORE', 'LIMIT', 0, CHUNK)
    for _, entry in ipairs(expired) do
      if #entry ~= 22 then
        return nil, 'x'
      end
    end
    local removed = #expired > 0 and queue_remove(expired) or 0
    if removed < #expired or removed == CHUNK then
      return nil, 'm'
    end
    waiters = waiters - removed
  end
  return waiters
end

-- Returns the cost of the waiters ahead of this entry, or of all if it is not in the queue, but at
-- most `enough`; its rank, if it has one; and its sequence number.
local function queue_ahead(entry, enough, waiters)
  local rank = entry and call('ZRANK', KEYS[3], entry) or nil
  local sequence = rank and tonumber(call('ZSCORE', KEYS[3], entry))
  local ahead, bit = rank or waiters, TOP_BIT
  if ahead > 0 and ahead < enough and call('EXISTS', KEYS[5]) == 1 then
    while bit >= 0 and ahead < enough do
      local zone = bit * ZONE
      local first, last = string.format('%.0f', zone), string.format('(%.0f', zone + (sequence or ZONE))
      ahead = ahead + 2 ^ bit * call('ZCOUNT', KEYS[5], first, last)
      bit = bit - 1
    end
  end
  return math.max(0, math.min(ahead, enough)), rank, sequence
end

-- Adds the entry, or extends its expiry if it has a sequence number. Returns that number.
local function queue_keep(entry, sequence, entry_ttl, ttl_max)
  -- First the write that can fail: without a queue, no call has looked at this key yet.
  call('ZADD', KEYS[4], string.format('%.0f', now + entry_ttl), entry)
  if not sequence then
    local last = call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]
    if not last and call('ZCARD', KEYS[5]) > 0 then
      -- Left over from a queue that the server evicted.
      call('UNLINK', KEYS[5])
    end
    sequence = (last or 0) + 1
    call('ZADD', KEYS[3], string.format('%.0f', sequence), entry)
  end
  local bits = {}
  add_bits(bits, entry, sequence)
  -- Other entries may expire later than this one.
  local expiry = string.format('%.0f', math.floor(ttl_max / 1000) + slack)
  if #bits > 0 then
    call('ZADD', KEYS[5], unpack(bits))
    call('PEXPIRE', KEYS[5], expiry)
  end
  call('PEXPIRE', KEYS[3], expiry)
  call('PEXPIRE', KEYS[4], expiry)
  return sequence
end
