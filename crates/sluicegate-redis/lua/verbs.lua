-- Every verb that changes something, under several limits and on several keys: all or nothing.
--
-- KEYS      a state for each limit; then, for a verb with receipts, where those of the key are
-- ARGV[2]   check, take, reserve, wait, within, refund, cancel or settle
--     3     how many limits
--     4     take: up to how much; reserve, wait, within: the longest wait; refund: how much; settle: what was used
--     5     reserve, wait, cancel, settle: the receipt
--     6     with receipts: the limits, as text
--     7...  for each limit 15: a letter, and the algorithm's arguments
-- Reply     1 or 0, the time, and each state as it was (after a refund: as it is now)
--           cancel: whether anything was given back; settle: whether the receipt was good
--           'full', the time: the key has as many open receipts as it may
--           'other', the time, the state, its place: it is written in other numbers, and nothing was done
--           'ask', the time: the windows of the calendar are needed for that time, and nothing was done

local algorithms = {
  b = {
    read = gcra_read, try = gcra_try, write = gcra_write, told = raw,
    remaining = gcra_remaining, lends = gcra_lends, charge = gcra_charge, refund = gcra_refund,
    record = gcra_record, give_back = gcra_give_back, close_gap = gcra_close_gap,
    lower_to = gcra_lower_to, counts_until = gcra_counts_until, cost = 11,
  },
  f = {
    read = fixed_window_read, try = fixed_window_try, write = fixed_window_write, told = raw,
    remaining = fixed_window_remaining, lends = fixed_window_lends, charge = fixed_window_spend,
    refund = fixed_window_refund, record = fixed_window_record, give_back = fixed_window_give_back,
    close_gap = pile_close_gap, lower_to = fixed_window_lower_to, counts_until = fixed_window_counts_until,
    cost = 2,
  },
  s = {
    read = sliding_window_read, try = sliding_window_try, write = sliding_window_write, told = raw,
    remaining = sliding_window_remaining, lends = sliding_window_lends, charge = sliding_window_charge,
    refund = sliding_window_refund, record = sliding_window_record, give_back = sliding_window_give_back,
    close_gap = pile_close_gap, lower_to = sliding_window_lower_to,
    counts_until = sliding_window_counts_until, cost = 2,
  },
  -- What is given to or taken from a log other than by a check is written at once, and then it is read again.
  l = {
    read = sliding_log_read, try = sliding_log_try, write = sliding_log_write, told = told_of_log,
    remaining = sliding_log_remaining, lends = sliding_log_lends, charge = sliding_log_charge,
    refund = sliding_log_refund, record = sliding_log_record, give_back = sliding_log_give_back,
    close_gap = pile_close_gap, lower_to = sliding_log_lower_to, counts_until = sliding_log_counts_until,
    cost = 1, is_written = true,
  },
  -- It has no receipts, and is not in lists; checks have a script of their own.
  o = {
    read = smooth_read, write = smooth_write, told = raw, refund = smooth_refund, cost = 1,
  },
}

local verb, limits, number, name = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local receipts, written_in = KEYS[limits + 1], ARGV[6]
local parts, told = {}, { 1, now }
for i = 1, limits do
  local a = 8 + (i - 1) * 15
  local rules = algorithms[ARGV[a - 1]]
  local s, other = rules.read(KEYS[i], a)
  if not s then
    return { 'other', now, other, i }
  elseif ARGV[a - 1] == 'f' and now >= s.ends and not fixed_window_end(a) then
    return { 'ask', now }
  end
  parts[i] = { rules = rules, s = s, a = a, key = KEYS[i], cost = tonumber(ARGV[a + rules.cost]) }
  told[i + 2] = rules.told(s, a)
end

-- Writes what was changed.
local function write(part)
  if part.rules.is_written then
    part.s = part.rules.read(part.key, part.a)
  else
    part.rules.write(part.key, part.s, part.a)
  end
end

local function denied()
  told[1] = 0
  return told
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
  return told
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
  return told
end

-- Until when anything of a receipt counts.
local function counts_until(receipt)
  local latest = 0
  for i = 1, #receipt do
    local part = parts[i]
    latest = math.max(latest, part.rules.counts_until(part.s, part.a, receipt[i]))
  end
  return latest
end

if verb == 'reserve' or verb == 'wait' or verb == 'within' then
  local waits, longest = {}, 0
  for i = 1, limits do
    local part = parts[i]
    local lends, waited, delay = true, false, 0
    if part.cost > 0 then
      lends, waited, delay = part.rules.lends(part.s, part.a, number)
    end
    if not lends then
      return denied()
    end
    waits[i] = waited or ARGV[part.a + 13] == 'paced'
    longest = math.max(longest, delay or 0)
  end
  -- Whoever waits for a turn needs a receipt while waiting, and whoever need not wait needs none.
  local receipt = { made = verb == 'wait' and now - HOUR or now }
  local is_kept = verb == 'reserve' or verb == 'wait' and longest > 0
  if is_kept and not receipts_have_room(receipts, written_in, counts_until) then
    return { 'full', now }
  end
  for i = 1, limits do
    local part = parts[i]
    if part.cost > 0 then
      part.rules.charge(part.s, part.a, part.cost)
      write(part)
    end
    local pile, height, part_of = part.rules.record(part.s, part.a)
    receipt[i] = { cost = part.cost, pile = pile, height = height, part = part_of, waited = waits[i] }
  end
  if is_kept then
    receipts_add(receipts, written_in, name, receipt, counts_until(receipt))
  end
  return told
end

local open = receipts_open(receipts, written_in)

-- Moves the charges of all open receipts under one limit to their new places.
local function move(i, how)
  for name, receipt in pairs(open) do
    local charge = receipt[i]
    local height, part = charge.height, charge.part
    how(charge)
    if charge.height ~= height or charge.part ~= part then
      receipt.moved = true
    end
  end
end

local function write_moved()
  for name, receipt in pairs(open) do
    if receipt.moved then
      receipts_write(receipts, name, receipt)
    end
  end
end

if verb == 'refund' then
  for i = 1, limits do
    local part = parts[i]
    if part.rules.refund(part.s, part.a, number) then
      write(part)
      move(i, function(charge)
        part.rules.lower_to(part.s, part.a, charge)
      end)
    end
  end
  write_moved()
  for i = 1, limits do
    local part = parts[i]
    told[i + 2] = part.rules.told(part.rules.read(part.key, part.a), part.a)
  end
  return told
end

-- Cancel and settle.
local receipt = open[name]
if not receipt then
  return denied()
end
open[name] = nil
call('HDEL', receipts, name)
local used = verb == 'settle' and number or 0
local gave = false
for i = 1, limits do
  local part, charge = parts[i], receipt[i]
  if used > charge.cost then
    part.rules.charge(part.s, part.a, used - charge.cost)
    write(part)
  elseif used < charge.cost then
    local cut = part.rules.give_back(part.s, part.a, charge, charge.cost - used)
    if cut then
      gave = true
      write(part)
      move(i, function(other)
        part.rules.close_gap(part.a, cut, other)
      end)
    end
  end
end
write_moved()
return { (verb == 'settle' or gave) and 1 or 0, now }
