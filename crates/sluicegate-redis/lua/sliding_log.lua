-- Functions for one sliding log in a list, for a long log, and for verbs other than check; see
-- sliding_log.rs. A check under one log has a script of its own, check/sliding_log.lua.
--
-- KEYS      the key's state under this limit
-- ARGV[a]   count
--     a+1   cost
--     a+2   period
-- State     '1', the version of the format .. packed filled, period .. slots. A slot is a time (7
--           bytes) and the running total of cost at that time (6 bytes), oldest first. The first
--           slot is the last call that was dropped; its total is where counting starts. The last
--           slot in use is the latest recorded call; it counts nothing if it was returned. Free
--           slots at the end are all 255. `filled` is the number of slots in use when the state was
--           last rewritten; there may be more now.
-- Formula   allow if the costs in (now - period, now] + cost <= count
-- Reply     slots: the one before the oldest call that counts, and the last one; if anything
--           counts, also that of the oldest call, that of the last call that must age out before
--           the cost fits (if it does not), and that of the newest call that counts
-- Work      slots are found by binary search; the state is rewritten only if no slot is free, or
--           most slots are of calls that have aged out

local SLOT = 13

local function sliding_log_offset(index)
  return SLOT + SLOT * index
end

-- Returns the bytes of some slots. Of a long log only those are read.
local function sliding_log_bytes(s, from, to)
  from, to = sliding_log_offset(from), sliding_log_offset(to + 1) - 1
  if to < #s.raw then
    return string.sub(s.raw, from + 1, to + 1)
  end
  return call('GETRANGE', s.key, from, to)
end

-- Returns the time and the running total in a slot.
local function sliding_log_slot(s, index)
  return struct.unpack('<I7I6', sliding_log_bytes(s, index, index))
end

-- Returns the first slot from `low` to `high` whose time or total (as `field` says) exceeds
-- `above`, or `high` if there is none.
local function sliding_log_search(s, low, high, field, above)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if select(field, sliding_log_slot(s, middle)) > above then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local function sliding_log_read(key, a)
  local raw = call('GETRANGE', key, 0, 4095)
  local s = { key = key, raw = raw, slots = 0, last = 0, first = 1, latest = 0, total = 0, base = 0, used = 0 }
  if raw == '' then
    return s
  elseif string.byte(raw) ~= 49 then
    return nil, raw
  end
  s.exists = true
  local size = #raw == 4096 and call('STRLEN', key) or #raw
  s.slots = size / SLOT - 1
  -- A damaged state is not read.
  if size % SLOT ~= 0 or s.slots < 2 then
    return nil, raw
  end
  s.filled, s.written_for = struct.unpack('<I4d', raw, 2)
  if s.filled < 2 or s.filled > s.slots then
    return nil, raw
  end
  -- The last slot in use: the one before the first free slot.
  local low, high = s.filled - 1, s.slots - 1
  while low < high do
    local middle = low + math.ceil((high - low) / 2)
    if string.byte(sliding_log_bytes(s, middle, middle), 7) == 255 then
      high = middle - 1
    else
      low = middle
    end
  end
  s.last = low
  s.latest, s.total = sliding_log_slot(s, low)
  local horizon = math.max(now, s.latest) - ARGV[a + 2]
  s.first = s.latest > horizon and sliding_log_search(s, 1, s.last, 1, horizon) or s.last + 1
  s.base = select(2, sliding_log_slot(s, s.first - 1))
  s.used = s.total - s.base
  return s
end

-- Returns the first slot that counts and whose total exceeds `above`. There is one.
local function sliding_log_reaching(s, above)
  return sliding_log_search(s, s.first, s.last, 2, above)
end

-- Returns the slots that a decision for this cost needs.
local function sliding_log_report(s, a, cost)
  if not s.exists then
    return false
  end
  local reply = sliding_log_bytes(s, s.first - 1, s.first - 1) .. sliding_log_bytes(s, s.last, s.last)
  if s.used == 0 then
    return reply
  end
  local function add(above)
    local index = sliding_log_reaching(s, above)
    reply = reply .. sliding_log_bytes(s, index, index)
  end
  add(s.base)
  local over = s.used + cost - ARGV[a]
  if over > 0 and cost <= tonumber(ARGV[a]) then
    add(s.base + over - 1)
  end
  add(s.total - 1)
  return reply
end

-- Writes slots from `index` on.
local function sliding_log_put(s, index, slots)
  call('SETRANGE', s.key, sliding_log_offset(index), slots)
end

local function sliding_log_pack(at, total)
  return struct.pack('<I7I6', at, total)
end

-- Returns some slots with lowered totals.
local function sliding_log_lowered(s, from, to, by)
  local block, slots = sliding_log_bytes(s, from, to), {}
  for offset = 1, #block, SLOT do
    local at, total = struct.unpack('<I7I6', block, offset)
    slots[#slots + 1] = sliding_log_pack(at, total - by)
  end
  return table.concat(slots)
end

-- Returns a state with these slots and some free ones.
local function sliding_log_state(slots, period)
  local filled = #slots / SLOT
  local room = string.rep('\255', SLOT * math.max(2, math.floor(filled / 8)))
  return '1' .. struct.pack('<I4d', filled, period) .. slots .. room
end

-- Records a call. Calls that have aged out are dropped whenever the state is rewritten.
local function sliding_log_enter(s, a, cost)
  local key, at, period = s.key, math.max(now, s.latest), tonumber(ARGV[a + 2])
  local expiry = string.format('%d', (at + 2 * period - now) / 1000 + slack)
  local entry, is_same = sliding_log_pack(at, s.total + cost), at == s.latest and s.last > 0
  local live = s.last - s.first + 1
  if not s.exists then
    call('SET', key, sliding_log_state(sliding_log_pack(0, 0) .. entry, period), 'PX', expiry)
  elseif is_same and s.written_for == period then
    sliding_log_put(s, s.last, entry)
  elseif
    not is_same
    and s.written_for == period
    and s.last + 1 < s.slots
    and s.first <= 64 + 4 * live
    and s.total < 140737488355328
  then
    sliding_log_put(s, s.last + 1, entry)
    -- Once per period is enough: an entry matters for one period, and the expiry is two away.
    if at % period < at - s.latest then
      call('PEXPIRE', key, expiry)
    end
  else
    -- A call in the same microsecond replaces the last entry.
    local last = is_same and s.last - 1 or s.last
    local kept = sliding_log_bytes(s, s.first - 1, last)
    if s.total >= 140737488355328 then
      -- Totals are rebased long before they could exceed their 6 bytes.
      kept = sliding_log_lowered(s, s.first - 1, last, s.base)
      entry = sliding_log_pack(at, s.used + cost)
    end
    call('SET', key, sliding_log_state(kept .. entry, period), 'PX', expiry)
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
