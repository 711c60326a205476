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
  local total = s.total - returned
  local from = sliding_log_reaching(s, total)
  local at = sliding_log_slot(s, from)
  local before = select(2, sliding_log_slot(s, from - 1))
  local kept = sliding_log_pack(s.latest, total)
  if total > before and at ~= s.latest then
    kept = sliding_log_pack(at, total) .. kept
  end
  sliding_log_put(s, from, kept .. string.rep('\255', SLOT * (s.last - from + 1) - #kept))
  local in_use = from + #kept / SLOT
  if in_use < s.filled then
    call('SETRANGE', s.key, 1, struct.pack('<I4', in_use))
  end
  return true
end

-- Returns the cost that was recorded at a time and still counts, and its slot.
local function sliding_log_cost_at(s, at)
  if s.used == 0 or at > s.latest then
    return 0
  end
  local index = sliding_log_search(s, s.first, s.last, 1, at - 1)
  local found, total = sliding_log_slot(s, index)
  if found ~= at then
    return 0
  end
  return total - select(2, sliding_log_slot(s, index - 1)), index
end

-- The stack is an entry, identified by its time.
local function sliding_log_record(s)
  return s.latest, s.last > 0 and s.total - select(2, sliding_log_slot(s, s.last - 1)) or 0, 0
end

local function sliding_log_roll_back(s, a, charge, most)
  local here, index = sliding_log_cost_at(s, charge.stack)
  local rollback = stack_roll_back(charge, most, here)
  if rollback then
    sliding_log_put(s, index, sliding_log_lowered(s, index, s.last, rollback.size))
  end
  return rollback
end

local function sliding_log_counts_until(s, a, charge)
  return charge.stack + ARGV[a + 2]
end
