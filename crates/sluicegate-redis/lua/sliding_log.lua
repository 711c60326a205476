-- Functions for one sliding log in a list, for a long log, and for verbs other than check; see
-- sliding_log.rs. A check under one log has a script of its own, check/sliding_log.lua.
--
-- KEYS      the key's state under this limit
-- ARGV[a]   count
--     a+1   cost
--     a+2   period
-- Slots     a slot is a time (7 bytes) and the running total of cost at that time (6 bytes). A
--           string of slots is oldest first. Slot 0 is what came before; its total is where
--           counting starts. Before the time in slot 0 of the index nothing counts.
-- State     of a short log a string: '1', the version of the format .. packed filled, period ..
--           slots. The last slot in use is the latest recorded call; it counts nothing if it was
--           returned. Free slots at the end are all 255. `filled` is the number of slots in use
--           when the state was last rewritten; there may be more now. With a mark it begins with
--           '!' instead of '1', and ends with a slot more: packed moment .. '!!!!!'.
--           Of a long log a hash:
--           't'  the tail: slots, as above, without free ones
--           'i'  the index: '1' .. packed period .. a slot for each block, of its last time and the
--                running total after it
--           'd'  the mark, if there is one: packed moment
--           and each block, named by the time in its slot of the index: slots, whose totals count
--           from the block's slot 0
-- Formula   allow if the costs in (now - period, now] + cost <= count
-- Reply     slots, whose totals count from the first: the one before the oldest call that counts,
--           and the last one; if anything counts, also that of the oldest call, that of the last
--           call that must age out before the cost fits (if it does not), and that of the newest
--           call that counts
-- Work      at most the index and a few blocks are read and written, so that a call takes some
--           microseconds whatever the log holds. A full tail becomes a block. A rollback lowers the
--           later totals of its block and of the index, and joins small blocks. Blocks that have
--           aged out are deleted whenever a block is added.

local SLOT = 13
local try = redis.pcall
-- A log of at most this many calls is a string.
local SHORT = 200
-- The most calls in a block, and roughly the square root of the largest count.
local BLOCK = 100
-- The most blocks. Two neighbours hold more calls than one block, so this many hold more than the
-- largest count: older calls decide nothing, and only settled debt can make a log this long.
local BLOCKS_MAX = 320
-- How many blocks are deleted at once, at most, because they have aged out.
local DELETED_MAX = 32
-- Totals are rebased beyond this, long before they could exceed their 6 bytes.
local TOTAL_MAX = 140737488355328

local function sliding_log_pack(at, total)
  return struct.pack('<I7I6', at, total)
end

-- Returns the time and the running total in a slot.
local function sliding_log_slot(slots, index)
  return struct.unpack('<I7I6', slots, SLOT * index + 1)
end

-- Returns the total in a slot.
local function sliding_log_total(slots, index)
  return (struct.unpack('<I6', slots, SLOT * index + 8))
end

-- Returns some slots; without `to`, all from `from` on.
local function sliding_log_cut(slots, from, to)
  return string.sub(slots, SLOT * from + 1, to and SLOT * (to + 1) or -1)
end

-- Returns the index of the last slot.
local function sliding_log_last(slots)
  return #slots / SLOT - 1
end

-- Returns the first slot from `low` on whose time or total (as `field` says) exceeds `above`. If
-- there is none, it is the one after the last.
local function sliding_log_search(slots, low, field, above)
  local format, offset = '<I7', 1
  if field == 'total' then
    format, offset = '<I6', 8
  end
  local high = #slots / SLOT
  while low < high do
    local middle = math.floor((low + high) / 2)
    if struct.unpack(format, slots, SLOT * middle + offset) > above then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- Returns some slots with lowered totals. One call unpacks many numbers, which is much faster.
local function sliding_log_lowered(slots, by)
  local lowered = {}
  for from = 0, sliding_log_last(slots), BLOCK do
    local part = sliding_log_cut(slots, from, from + BLOCK - 1)
    local format = '<' .. string.rep('I7I6', #part / SLOT)
    local numbers = { struct.unpack(format, part) }
    numbers[#numbers] = nil
    for i = 2, #numbers, 2 do
      numbers[i] = numbers[i] - by
    end
    lowered[#lowered + 1] = struct.pack(format, unpack(numbers))
  end
  return table.concat(lowered)
end

-- Returns the name of a block.
local function sliding_log_name(s, index)
  return string.sub(s.index, SLOT * index + 1, SLOT * index + 7)
end

-- Returns the slots of a block. The one after the last is the tail.
local function sliding_log_block(s, index)
  if index > s.blocks then
    return s.tail
  elseif not s.known[index] then
    s.known[index] = call('HGET', s.key, sliding_log_name(s, index)) or error('a block is missing')
  end
  return s.known[index]
end

-- Returns what must be added to a total in a block to get the running total of the log.
local function sliding_log_offset(s, index)
  return sliding_log_total(s.index, index - 1) - sliding_log_total(sliding_log_block(s, index), 0)
end

-- Returns the block and the slot of the first call whose running total exceeds `above`. There is
-- one, and it counts.
local function sliding_log_reaching(s, above)
  local index = sliding_log_search(s.index, 1, 'total', above)
  local slots = sliding_log_block(s, index)
  return index, sliding_log_search(slots, 1, 'total', above - sliding_log_offset(s, index))
end

-- Reads a short log. Returns false if the state is damaged.
local function sliding_log_read_short(s, raw)
  local slots = #raw / SLOT - 1
  if slots % 1 ~= 0 or slots < 2 then
    return false
  end
  s.slots, s.filled, s.written_for = slots, struct.unpack('<I4d', raw, 2)
  if s.filled < 2 or s.filled > slots then
    return false
  end
  -- The last slot in use: the one before the first free slot.
  local low, high = s.filled - 1, slots - 1
  while low < high do
    local middle = math.ceil((low + high) / 2)
    if string.byte(raw, SLOT * middle + 20) == 255 then
      high = middle - 1
    else
      low = middle
    end
  end
  s.tail = string.sub(raw, SLOT + 1, SLOT * (low + 2))
  return true
end

-- Reads a long log. Returns false if the state is damaged.
local function sliding_log_read_long(s, index, tail)
  s.is_long, s.written_for = true, struct.unpack('<d', index, 2)
  s.index, s.tail = string.sub(index, 10), tail
  return #s.index % SLOT == 0 and #tail % SLOT == 0 and #s.index >= SLOT and #tail >= 2 * SLOT
end

local function sliding_log_read(key, a)
  local s = { key = key, index = sliding_log_pack(0, 0), blocks = 0, known = {}, last = 0, latest = 0, total = 0, base = 0, used = 0, oldest = 1, first = 1 }
  -- The type of a log that is rarely long is not queried first.
  local raw
  if tonumber(ARGV[a]) <= SHORT or call('TYPE', key).ok ~= 'hash' then
    raw = try('GET', key)
    if not raw then
      return s
    end
  end
  local tail
  if type(raw) ~= 'string' then
    local fields = call('HMGET', key, 'i', 't', 'd')
    raw, tail, s.due = fields[1] or '', fields[2] or '', fields[3] and struct.unpack('<d', fields[3])
  elseif string.byte(raw) == 33 and #raw > 2 * SLOT then
    s.due = struct.unpack('<d', raw, #raw - SLOT + 1)
    raw = '1' .. string.sub(raw, 2, -SLOT - 1)
  end
  if string.byte(raw) ~= 49 or tail and #raw < 22 then
    return nil, raw, s.due
  end
  -- A damaged state is not read.
  if not (tail and sliding_log_read_long(s, raw, tail) or not tail and sliding_log_read_short(s, raw)) then
    return nil, raw, s.due
  end
  s.exists = true
  s.blocks, s.last = sliding_log_last(s.index), sliding_log_last(s.tail)
  local offset, total = sliding_log_offset(s, s.blocks + 1)
  s.latest, total = sliding_log_slot(s.tail, s.last)
  s.total = total + offset
  -- The oldest call that counts: its block and its slot. A longer period than before brings back
  -- none of the calls that have aged out.
  local horizon = math.max(now, s.latest) - math.min(tonumber(ARGV[a + 2]), s.written_for)
  horizon = math.max(horizon, sliding_log_slot(s.index, 0) - 1)
  s.oldest = sliding_log_search(s.index, 1, 'time', horizon)
  local slots = sliding_log_block(s, s.oldest)
  s.first = sliding_log_search(slots, 1, 'time', horizon)
  s.base = sliding_log_total(slots, s.first - 1) + sliding_log_offset(s, s.oldest)
  s.used = s.total - s.base
  return s
end

-- Returns the slots that a decision for this cost needs.
local function sliding_log_report(s, a, cost)
  if not s.exists then
    return false
  end
  local reply = sliding_log_pack(0, 0) .. sliding_log_pack(s.latest, s.used)
  if s.used == 0 then
    return reply
  end
  local function add(above)
    local index, place = sliding_log_reaching(s, s.base + above)
    local at, total = sliding_log_slot(sliding_log_block(s, index), place)
    reply = reply .. sliding_log_pack(at, total + sliding_log_offset(s, index) - s.base)
  end
  add(0)
  local over = s.used + cost - ARGV[a]
  if over > 0 and cost <= tonumber(ARGV[a]) then
    add(over - 1)
  end
  add(s.used - 1)
  return reply
end

-- Returns the state of a short log with these slots and some free ones.
local function sliding_log_state(slots, period, due)
  local filled = #slots / SLOT
  local room = string.rep('\255', SLOT * math.max(2, math.floor(filled / 8)))
  local state = struct.pack('<I4d', filled, period) .. slots .. room
  return due and '!' .. state .. struct.pack('<d', due) .. '!!!!!' or '1' .. state
end

local function sliding_log_index(slots, period)
  return '1' .. struct.pack('<d', period) .. slots
end

-- Deletes blocks. The caller writes the index.
local function sliding_log_delete(s, from, to)
  local names = {}
  for index = from, to do
    names[#names + 1] = sliding_log_name(s, index)
  end
  if #names > 0 then
    call('HDEL', s.key, unpack(names))
  end
end

-- Replaces the index and the tail, and keeps the expiry.
local function sliding_log_put(s, index, tail)
  if s.is_long then
    call('HSET', s.key, 'i', sliding_log_index(index, s.written_for), 't', tail)
  else
    call('SET', s.key, sliding_log_state(tail, s.written_for, s.due), 'KEEPTTL')
  end
end

-- Converts a log that was written for another period, and returns it. Calls that have aged out do
-- not count again under a longer one; a long log keeps them until their blocks are deleted.
local function sliding_log_adopt(key, s, a)
  local period, at = tonumber(ARGV[a + 2]), math.max(now, s.latest)
  if not s.exists or s.written_for == period then
    return s
  end
  local index, tail, is_longer = s.index, s.tail, period > s.written_for
  if is_longer and s.is_long then
    local since, total = sliding_log_slot(index, 0)
    index = sliding_log_pack(math.max(since, at - s.written_for + 1), total) .. sliding_log_cut(index, 1)
  elseif is_longer then
    tail = sliding_log_cut(tail, s.first - 1)
    if s.first > s.last then
      tail = tail .. tail
    end
  end
  s.written_for = period
  sliding_log_put(s, index, tail)
  if is_longer then
    call('PEXPIRE', key, string.format('%d', (at + 2 * period - now) / 1000 + slack))
  end
  return sliding_log_read(key, a)
end

-- Turns a short log into a long one.
local function sliding_log_lengthen(key, slots, period, due)
  local last, index, fields = sliding_log_last(slots), {}, {}
  local from = math.max(0, last - BLOCK * BLOCKS_MAX)
  index[1] = sliding_log_cut(slots, from, from)
  while last - from > BLOCK do
    local ends = sliding_log_cut(slots, from + BLOCK, from + BLOCK)
    index[#index + 1] = ends
    fields[#fields + 1] = string.sub(ends, 1, 7)
    fields[#fields + 1] = sliding_log_cut(slots, from, from + BLOCK)
    from = from + BLOCK
  end
  index = sliding_log_index(table.concat(index), period)
  call('UNLINK', key)
  call('HSET', key, 'i', index, 't', sliding_log_cut(slots, from), unpack(fields))
  if due then
    call('HSET', key, 'd', struct.pack('<d', due))
  end
end

-- Adds an entry to a long log whose tail is full. The tail becomes a block.
local function sliding_log_begin_tail(s, at, cost, period)
  local index = s.index .. sliding_log_pack(s.latest, s.total)
  local deleted = math.max(math.min(s.oldest - 1, DELETED_MAX), s.blocks + 1 - BLOCKS_MAX)
  sliding_log_delete(s, 1, deleted)
  if deleted > 0 then
    local at, total = sliding_log_slot(index, deleted)
    at = math.max(at, (sliding_log_slot(index, 0)))
    index = sliding_log_pack(at, total) .. sliding_log_cut(index, deleted + 1)
  end
  if s.total >= TOTAL_MAX then
    index = sliding_log_lowered(index, sliding_log_total(index, 0))
  end
  local tail = sliding_log_pack(s.latest, 0) .. sliding_log_pack(at, cost)
  local name = sliding_log_cut(s.tail, s.last)
  call('HSET', s.key, string.sub(name, 1, 7), s.tail, 'i', sliding_log_index(index, period), 't', tail)
end

-- Records a call. Calls that have aged out are dropped whenever the state is rewritten.
local function sliding_log_enter(s, a, cost)
  cost = math.min(cost, DEBT_MAX - s.used)
  if cost <= 0 then
    return
  end
  local key, at, period = s.key, math.max(now, s.latest), tonumber(ARGV[a + 2])
  local expiry = string.format('%d', (at + 2 * period - now) / 1000 + slack)
  if s.oldest > s.blocks and s.first > s.last then
    -- Nothing counts.
    if s.is_long then
      call('UNLINK', key)
    end
    local slots = sliding_log_pack(0, 0) .. sliding_log_pack(at, cost)
    call('SET', key, sliding_log_state(slots, period, s.due), 'PX', expiry)
    return
  end
  -- A call in the same microsecond replaces the last entry, and so does one after an entry that
  -- counts nothing.
  local total = sliding_log_total(s.tail, s.last)
  local is_replaced = at == s.latest or total == sliding_log_total(s.tail, s.last - 1)
  local last = is_replaced and s.last - 1 or s.last
  local entry = sliding_log_pack(at, total + cost)
  if s.is_long then
    if last >= BLOCK then
      sliding_log_begin_tail(s, at, cost, period)
    else
      call('HSET', key, 't', sliding_log_cut(s.tail, 0, last) .. entry)
    end
  elseif last + 1 < s.slots and total < TOTAL_MAX then
    call('SETRANGE', key, string.format('%d', SLOT * (last + 2)), entry)
  else
    local kept = sliding_log_cut(s.tail, s.first - 1, last) .. entry
    if total >= TOTAL_MAX then
      kept = sliding_log_lowered(kept, sliding_log_total(kept, 0))
    end
    if sliding_log_last(kept) <= SHORT then
      call('SET', key, sliding_log_state(kept, period, s.due), 'PX', expiry)
      return
    end
    sliding_log_lengthen(key, kept, period, s.due)
    call('PEXPIRE', key, expiry)
  end
  -- Once per period is enough: an entry matters for one period, and the expiry is two away.
  if at % period < at - s.latest then
    call('PEXPIRE', key, expiry)
  end
end

local function sliding_log_try(s, a)
  local cost = tonumber(ARGV[a + 1])
  if s.used + cost > tonumber(ARGV[a]) then
    return false
  end
  s.cost = cost
  return true
end

local function sliding_log_write(key, s, a)
  sliding_log_enter(s, a, s.cost)
end

-- The state of an unseen key, with a mark.
local function sliding_log_blank(a, due)
  local none = sliding_log_pack(0, 0)
  return sliding_log_state(none .. none, tonumber(ARGV[a + 2]), due)
end

-- Sets the mark of a log, or removes it.
local function sliding_log_mark(s, due)
  if not s.is_long then
    s.due = due
    sliding_log_put(s, s.index, s.tail)
  elseif due then
    call('HSET', s.key, 'd', struct.pack('<d', due))
  else
    call('HDEL', s.key, 'd')
  end
end
