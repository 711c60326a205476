-- All verbs that change state, under a list of limits and on several keys: all or nothing.
--
-- KEYS      one state per limit; then the receipts of each key
-- ARGV[2]   check, take, reserve, wait, within, refund, cancel or settle
--     3     the number of limits
--     4     take: the most to charge; reserve, wait, within: the longest wait; refund: the cost;
--           settle: the usage
--     5     reserve, wait, cancel, settle: the receipt
--     6     verbs with receipts: the limits, as text
--     7...  18 per limit: a letter, and the algorithm's arguments
-- Reply     1 or 0, the time, and each state before the call (refund: after it)
--           cancel: 1 if anything was returned; settle: 1 if the receipt was open
--           'full', the time: the key has too many open receipts
--           'other', the time, the state, its index: a state of another limit that cannot be
--           converted here; nothing was done
--           'windows', the time: the calendar windows around it are needed; nothing was done

local algorithms = {
  b = {
    read = gcra_read, convert = gcra_convert, try = gcra_try, write = gcra_write, report = state_report,
    remaining = gcra_remaining, reserve_wait = gcra_reserve_wait, charge = gcra_charge, refund = gcra_refund,
    record = gcra_record, lower = gcra_lower, roll_back = gcra_roll_back, counts_until = gcra_counts_until,
    cost = 11,
  },
  f = {
    read = fixed_window_read, adopt = fixed_window_adopt, try = fixed_window_try, write = fixed_window_write,
    report = state_report, remaining = fixed_window_remaining, reserve_wait = fixed_window_reserve_wait,
    charge = fixed_window_spend, refund = fixed_window_refund, record = fixed_window_record,
    roll_back = fixed_window_roll_back, counts_until = fixed_window_counts_until, cost = 2,
  },
  s = {
    read = sliding_window_read, adopt = sliding_window_adopt, try = sliding_window_try,
    write = sliding_window_write, report = state_report, remaining = sliding_window_remaining,
    reserve_wait = sliding_window_reserve_wait, charge = sliding_window_charge, refund = sliding_window_refund,
    record = sliding_window_record, roll_back = sliding_window_roll_back,
    counts_until = sliding_window_counts_until, cost = 2,
  },
  -- A log is written at once, except by a check, and then read again.
  l = {
    read = sliding_log_read, adopt = sliding_log_adopt, try = sliding_log_try, write = sliding_log_write,
    report = log_report, remaining = sliding_log_remaining, reserve_wait = sliding_log_reserve_wait,
    charge = sliding_log_charge, refund = sliding_log_refund, record = sliding_log_record,
    roll_back = sliding_log_roll_back, counts_until = sliding_log_counts_until, cost = 1, is_written = true,
  },
  -- `smooth` has no receipts and is never in a list; its checks have a script of their own.
  o = {
    read = smooth_read, adopt = smooth_adopt, write = smooth_write, report = state_report,
    refund = smooth_refund, cost = 1,
  },
}

local verb, limits, number, name = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local receipts, written_in = KEYS[limits + 1], ARGV[6]

-- A receipt that is not open changes nothing, so it converts nothing either.
if (verb == 'cancel' or verb == 'settle') and not call('HGET', receipts, name) then
  return { 0, now }
end

local parts, reply = {}, { 1, now }
for i = 1, limits do
  local a = 8 + (i - 1) * 18
  local rules = algorithms[ARGV[a - 1]]
  local s, other = rules.read(KEYS[i], a)
  local cost = tonumber(ARGV[a + rules.cost])
  -- A call of cost 0 changes nothing: it is decided on a converted state that is not stored.
  local stays = cost == 0 and (verb == 'check' or verb == 'within' or verb == 'wait')
  if other and rules.convert then
    s = rules.convert(other, KEYS[i], a, stays)
  elseif s and rules.adopt and not stays then
    s = rules.adopt(KEYS[i], s, a)
  end
  if not s then
    converted_write()
    return { 'other', now, other, i }
  elseif ARGV[a - 1] == 'f' and now >= s.ends and not fixed_window_end(a) then
    converted_write()
    return { 'windows', now }
  end
  parts[i] = { rules = rules, s = s, a = a, key = KEYS[i], cost = cost }
  reply[i + 2] = rules.report(s, a)
end
converted_write()

-- Writes a changed state.
local function write(part)
  if part.rules.is_written then
    part.s = part.rules.read(part.key, part.a)
  else
    part.rules.write(part.key, part.s, part.a)
  end
end

local function denied()
  reply[1] = 0
  return reply
end

if verb == 'check' then
  for i = 1, limits do
    local part = parts[i]
    if part.cost > 0 and not part.rules.try(part.s, part.a) then
      return denied()
    end
  end
  for i = 1, limits do
    local part = parts[i]
    if part.cost > 0 then
      part.rules.write(part.key, part.s, part.a)
    end
  end
  return reply
end

if verb == 'take' then
  local taken = number
  for i = 1, limits do
    taken = math.min(taken, parts[i].rules.remaining(parts[i].s, parts[i].a))
  end
  if taken == 0 then
    return denied()
  end
  for i = 1, limits do
    local part = parts[i]
    part.rules.charge(part.s, part.a, taken)
    write(part)
  end
  return reply
end

-- The open receipts of the key, for the verbs that need them.
local open

-- Returns the time until which a charge of a receipt counts.
local function counts_until(receipt)
  local latest = 0
  for i = 1, #receipt do
    local part = parts[i]
    latest = math.max(latest, part.rules.counts_until(part.s, part.a, receipt[i], open.limits[i]))
  end
  return latest
end

if verb == 'reserve' or verb == 'wait' or verb == 'within' then
  local waits, longest = {}, 0
  for i = 1, limits do
    local part = parts[i]
    local fits, waited, delay = true, false, 0
    if part.cost > 0 then
      fits, waited, delay = part.rules.reserve_wait(part.s, part.a, number)
    end
    if not fits then
      return denied()
    end
    waits[i] = waited or ARGV[part.a + 13] == 'paced'
    longest = math.max(longest, delay or 0)
  end
  -- A waiter needs a receipt only while it waits, and none if it need not wait.
  local receipt = { made = verb == 'wait' and now - HOUR or now }
  if verb == 'reserve' or verb == 'wait' and longest > 0 then
    open = receipts_read(receipts, written_in, limits)
    if not receipts_have_room(open, counts_until) then
      return { 'full', now }
    end
  end
  for i = 1, limits do
    local part = parts[i]
    if part.cost > 0 then
      part.rules.charge(part.s, part.a, part.cost)
      write(part)
    end
    if open then
      local stack, height = part.rules.record(part.s, part.a, open.limits[i], open.number)
      receipt[i] = { cost = part.cost, stack = stack, height = height, waited = waits[i] }
    end
  end
  if open then
    receipts_add(open, name, receipt, counts_until)
  end
  return reply
end

if verb == 'refund' then
  open = receipts_read(receipts, written_in, limits)
  for i = 1, limits do
    local part = parts[i]
    local measure = part.rules.lower or part.rules.record
    local stack = open.open > 0 and measure(part.s, part.a, open.limits[i])
    if part.rules.refund(part.s, part.a, number) then
      write(part)
      if stack then
        local _, height = measure(part.s, part.a, open.limits[i])
        receipts_cap(open, i, stack, height)
      end
      reply[i + 2] = part.rules.report(part.rules.read(part.key, part.a), part.a)
    end
  end
  if open.open > 0 then
    receipts_write(open)
  end
  return reply
end

-- Cancel and settle.
open = receipts_read(receipts, written_in, limits)
local receipt = receipts_find(open, name)
if not receipt then
  return denied()
end
local used = verb == 'settle' and number or 0
local returned = false
for i = 1, limits do
  local part, charge = parts[i], receipt[i]
  if used > charge.cost then
    part.rules.charge(part.s, part.a, used - charge.cost)
    write(part)
  elseif used < charge.cost then
    receipts_measure(open, receipt, i)
    local size = part.rules.roll_back(part.s, part.a, charge, charge.cost - used, open.limits[i])
    if size then
      returned = true
      write(part)
      receipts_roll_back(open, receipt, i, size)
    end
  end
end
receipts_remove(open, receipt)
receipts_write(open)
return { (verb == 'settle' or returned) and 1 or 0, now }
