-- The verbs of a sliding log other than check.

local function sliding_log_remaining(s, a)
  return math.max(0, ARGV[a] - s.used)
end

-- A reservation is decided like a check.
local function sliding_log_reserve_wait(s, a)
  return tonumber(ARGV[a + 1]) <= sliding_log_remaining(s, a), false
end

local function sliding_log_charge(s, a, units)
  sliding_log_enter(s, a, units)
end

-- Returns the newest entries first. The latest time stays, in a slot that counts nothing.
local function sliding_log_refund(s, a, units)
  local returned = math.min(units, s.used)
  if returned == 0 then
    return false
  end
  local index, place = sliding_log_reaching(s, s.total - returned)
  local slots, total = sliding_log_block(s, index), s.total - returned - sliding_log_offset(s, index)
  local at, tail = sliding_log_slot(slots, place), sliding_log_cut(slots, 0, place - 1)
  if total > sliding_log_total(slots, place - 1) and at ~= s.latest then
    tail = tail .. sliding_log_pack(at, total)
  end
  sliding_log_delete(s, index, s.blocks)
  sliding_log_put(s, sliding_log_cut(s.index, 0, index - 1), tail .. sliding_log_pack(s.latest, total))
  return true
end

-- Returns the cost that was recorded at a time and still counts, its block and its slot.
local function sliding_log_cost_at(s, at)
  if s.used == 0 or at > s.latest then
    return 0
  end
  local index = sliding_log_search(s.index, 1, 'time', at - 1)
  local slots = sliding_log_block(s, index)
  local place = sliding_log_search(slots, 1, 'time', at - 1)
  if index < s.oldest or index == s.oldest and place < s.first or place > sliding_log_last(slots) then
    return 0
  end
  local found, total = sliding_log_slot(slots, place)
  if found ~= at then
    return 0
  end
  return total - sliding_log_total(slots, place - 1), index, place
end

-- The stack is an entry, identified by its time.
local function sliding_log_record(s)
  return s.latest, s.last > 0 and sliding_log_total(s.tail, s.last) - sliding_log_total(s.tail, s.last - 1) or 0
end

-- Replaces a block by other slots, and joins it with a neighbour if both fit in one block. `later`
-- is the index after this block.
local function sliding_log_replace_block(s, index, slots, later)
  local from, to = index, index
  local total = sliding_log_total(s.index, index - 1)
  for _, other in ipairs({ index - 1, index + 1 }) do
    if other > 0 and other <= s.blocks then
      local near = sliding_log_block(s, other)
      if sliding_log_last(near) + sliding_log_last(slots) <= BLOCK then
        local before, after = near, slots
        if other > index then
          before, after, to = slots, near, other
          later = sliding_log_cut(later, 1)
        else
          from, total = other, sliding_log_total(s.index, other - 1)
        end
        local up = sliding_log_total(before, sliding_log_last(before)) - sliding_log_total(after, 0)
        slots = before .. sliding_log_lowered(sliding_log_cut(after, 1), -up)
      end
    end
  end
  sliding_log_delete(s, from, to)
  local changed = sliding_log_cut(s.index, 0, from - 1)
  local last = sliding_log_last(slots)
  if last > 0 then
    local at, sum = sliding_log_slot(slots, last)
    local ends = sliding_log_pack(at, total + sum - sliding_log_total(slots, 0))
    changed = changed .. ends
    call('HSET', s.key, string.sub(ends, 1, 7), slots)
  end
  sliding_log_put(s, changed .. later, s.tail)
end

local function sliding_log_roll_back(s, a, charge, most)
  local here, index, place = sliding_log_cost_at(s, charge.stack)
  local rollback = stack_roll_back(charge, most, here)
  if not rollback then
    return nil
  end
  local slots = sliding_log_block(s, index)
  local is_tail = index > s.blocks
  -- An entry that counts nothing any more is removed, unless it has the latest time.
  local is_removed = rollback == here and not (is_tail and place == s.last)
  slots = sliding_log_cut(slots, 0, place - 1)
    .. sliding_log_lowered(sliding_log_cut(slots, is_removed and place + 1 or place), rollback)
  if is_tail then
    sliding_log_put(s, s.index, slots)
  else
    sliding_log_replace_block(s, index, slots, sliding_log_lowered(sliding_log_cut(s.index, index + 1), rollback))
  end
  return rollback
end

local function sliding_log_counts_until(s, a, charge)
  return charge.stack + ARGV[a + 2]
end
