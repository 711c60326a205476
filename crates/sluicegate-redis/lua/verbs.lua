-- All verbs that change state, under a list of limits and on several keys: all or nothing. The key
-- first notices which receipts have expired.
--
-- KEYS      of each key: one state per limit, its receipts, and their deadlines
-- ARGV[2]   check, take, reserve, wait, within, refund, extend, cancel, settle; confirm: gives a
--           receipt another time to live, from when it was made; read: as read.lua, as if the keys
--           had noticed; notice: only that
--     3     the number of keys
--     4     reserve, wait, within: the longest wait
--     5     reserve, wait, extend, cancel, settle, confirm: the receipt
--     6     reserve, extend, confirm: its time to live, or 0
--     7     reserve, confirm: 'cancel' if its charge is returned then
--     8     reserve: 1 if less than the cost may be granted, otherwise 0
--     9...  for each key: the number of its limits; the limits, as text; take: the most to charge;
--           refund: the cost; settle: the usage; reserve: the cost, of which the cost of the limits
--           is the least that is worth granting; and for each limit 18: a letter, and the
--           algorithm's arguments
-- Reply     1 or 0, the time, and each state before the call (refund: after it)
--           extend: then for each key '1' or '0': whether it has a part of the receipt
--           cancel: 1 if anything was returned; settle: 1 if the receipt was open
--           'again', the time: more receipts have expired than one call can close, or have been
--           closed by this one; the call has not been decided
--           'closed', the time: the receipt to extend or confirm is not open
--           'full', the time: the key has too many open receipts
--           'other', the time, the state, its index: a state of another limit that cannot be
--           converted here; nothing was done
--           'windows', the time: the calendar windows around it are needed; nothing was done

local algorithms = {
  b = {
    read = gcra_read, convert = gcra_convert, try = gcra_try, write = gcra_write, report = state_report,
    remaining = gcra_remaining, reserve_wait = gcra_reserve_wait, charge = gcra_charge, refund = gcra_refund,
    record = gcra_record, lower = gcra_lower, roll_back = gcra_roll_back, counts_until = gcra_counts_until,
    blank = gcra_blank, cost = 11,
  },
  f = {
    read = fixed_window_read, adopt = fixed_window_adopt, try = fixed_window_try, write = fixed_window_write,
    report = state_report, remaining = fixed_window_remaining, reserve_wait = fixed_window_reserve_wait,
    charge = fixed_window_spend, refund = fixed_window_refund, record = fixed_window_record,
    roll_back = fixed_window_roll_back, counts_until = fixed_window_counts_until,
    blank = fixed_window_blank, cost = 2,
  },
  s = {
    read = sliding_window_read, adopt = sliding_window_adopt, try = sliding_window_try,
    write = sliding_window_write, report = state_report, remaining = sliding_window_remaining,
    reserve_wait = sliding_window_reserve_wait, charge = sliding_window_charge, refund = sliding_window_refund,
    record = sliding_window_record, roll_back = sliding_window_roll_back,
    counts_until = sliding_window_counts_until, blank = sliding_window_blank, cost = 2,
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

-- A function of its own: a chunk of Lua has at most 200 local names.
local function decide()
  local verb, max_wait, name = ARGV[2], tonumber(ARGV[4]), ARGV[5]
  local ttl, takes_less = tonumber(ARGV[6]), ARGV[8] == '1'
  local keys, parts, reply = {}, {}, { 1, now }
  local argument, first = 9, 1
  for k = 1, tonumber(ARGV[3]) do
    local limits = tonumber(ARGV[argument])
    local key = {
      text = ARGV[argument + 1], number = tonumber(ARGV[argument + 2]), parts = {},
      receipts = KEYS[first + limits], deadlines = KEYS[first + limits + 1],
    }
    argument = argument + 3
    for i = 1, limits do
      local a = argument + 1
      local rules = algorithms[ARGV[argument]]
      local part = { rules = rules, a = a, key = KEYS[first], cost = tonumber(ARGV[a + rules.cost]) }
      key.parts[i], parts[#parts + 1] = part, part
      argument, first = argument + 18, first + 1
    end
    -- A call of cost 0 changes nothing: it is decided on a converted state that is not stored.
    key.stays = verb == 'read' or key.parts[1].cost == 0 and (verb == 'check' or verb == 'within' or verb == 'wait')
    first = first + 2
    keys[k] = key
  end

  -- A receipt that is not open changes nothing, so it converts nothing either.
  local closes = verb == 'cancel' or verb == 'settle'
  local uses_receipt = closes or verb == 'extend' or verb == 'confirm'
  if uses_receipt then
    local is_known = false
    for _, key in ipairs(keys) do
      is_known = call('HGET', key.receipts, name) or is_known
    end
    if not is_known then
      return { closes and 0 or 'closed', now }
    end
  end

  -- Reads the states of a key. Returns true if some of its receipts may have expired.
  local function key_read(key)
    local is_due = false
    for _, part in ipairs(key.parts) do
      part.s, part.other, part.due = part.rules.read(part.key, part.a)
      local due = part.s and part.s.due or part.due
      is_due = is_due or due and now >= due
    end
    return is_due
  end

  local has_more, has_closed, has_returned = false, false, false
  for _, key in ipairs(keys) do
    if key_read(key) then
      if key.stays then
        local names = { key.receipts, key.deadlines }
        for i, part in ipairs(key.parts) do
          names[i + 2] = part.key
        end
        as_if(names)
      end
      local function on_step(receipt)
        has_closed = has_closed or receipt.charges == 0
        has_returned = has_returned or receipt.returned
      end
      has_more = key_notice(key, verb == 'cancel' and name, on_step) or has_more
      key_read(key)
    end
  end
  if has_returned then
    return { 1, now }
  elseif has_more then
    return { 'again', now }
  elseif has_closed or verb == 'notice' then
    return { 0, now }
  end

  for i, part in ipairs(parts) do
    if verb == 'read' then
      reply[i + 2] = part.s and part.rules.report(part.s, part.a) or part.other or false
    end
  end
  if verb == 'read' then
    return reply
  end

  local index = 0
  for _, key in ipairs(keys) do
    for _, part in ipairs(key.parts) do
      local rules, a = part.rules, part.a
      index = index + 1
      if part.other and rules.convert then
        part.s = rules.convert(part.other, part.key, a, key.stays, part.due)
      elseif part.s and rules.adopt and not key.stays then
        part.s = rules.adopt(part.key, part.s, a)
      end
      if not part.s then
        converted_write()
        return { 'other', now, part.other, index }
      elseif ARGV[a - 1] == 'f' and now >= part.s.ends and not fixed_window_end(a) then
        converted_write()
        return { 'windows', now }
      end
      reply[index + 2] = rules.report(part.s, a)
    end
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
    for _, part in ipairs(parts) do
      if part.cost > 0 and not part.rules.try(part.s, part.a) then
        return denied()
      end
    end
    for _, part in ipairs(parts) do
      if part.cost > 0 then
        part.rules.write(part.key, part.s, part.a)
      end
    end
    return reply
  end

  -- Returns a cost, or as much of it as remains.
  local function at_most(cost)
    for _, part in ipairs(parts) do
      cost = math.min(cost, part.rules.remaining(part.s, part.a))
    end
    return cost
  end

  if verb == 'take' then
    local taken = at_most(keys[1].number)
    if taken == 0 then
      return denied()
    end
    for _, part in ipairs(parts) do
      part.rules.charge(part.s, part.a, taken)
      write(part)
    end
    return reply
  end

  if verb == 'refund' then
    local key = keys[1]
    local open = receipts_read(key.receipts, key.deadlines, key.text, #key.parts)
    for i, part in ipairs(parts) do
      local measure = part.rules.lower or part.rules.record
      local stack = open.open > 0 and measure(part.s, part.a, open.limits[i])
      if part.rules.refund(part.s, part.a, key.number) then
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

  -- The keys that the call is about, each with its receipts: to a receipt it is what of it is open.
  local taking, has_part = {}, {}
  for k, key in ipairs(keys) do
    if uses_receipt then
      key.r = receipts_read(key.receipts, key.deadlines, key.text, #key.parts)
      key.receipt = receipts_find(key.r, name)
      key.receipt = key.receipt and receipts_is_open(key.receipt) and key.receipt
    end
    if key.receipt or not uses_receipt then
      taking[#taking + 1] = key
    end
    has_part[k] = key.receipt and '1' or '0'
  end
  if #taking == 0 then
    return { closes and 0 or 'closed', now }
  elseif verb == 'extend' then
    reply[#parts + 3] = table.concat(has_part)
  end

  for _, key in ipairs(taking) do
    -- Returns the time until which a charge of the key counts.
    function key.counts_until(charge, r)
      local latest = 0
      for i, part in ipairs(key.parts) do
        latest = math.max(latest, part.rules.counts_until(part.s, part.a, charge[i], r.limits[i]))
      end
      return latest
    end
  end

  if verb == 'confirm' then
    for _, key in ipairs(taking) do
      local r, receipt = key.r, key.receipt
      receipt.cancels, receipt.length = ARGV[7] == 'cancel', ttl
      if ttl > 0 then
        receipt.ends = math.min(receipt.made + ttl, 9007199254740991)
        r.ends = math.max(r.ends, receipt.ends)
        receipts_set_deadline(r, receipt, receipt.ends)
      else
        local charge = receipts_charge(r, receipt, 1)
        for i = 1, #key.parts do
          receipts_measure(r, charge, i)
        end
        receipts_set_deadline(r, receipt, nil)
        receipt.ends, r.has_ended = 0, true
        r.kept = math.max(r.kept, receipt.made + HOUR, key.counts_until(charge, r))
      end
      receipts_write(r, name, receipts_pack(receipt))
      -- It may end earlier than it would have.
      key_mark(key)
    end
    return { 1, now }
  end

  if closes then
    local is_closed = true
    for _, key in ipairs(taking) do
      local receipt = key.receipt
      local used = verb == 'settle' and key.number or 0
      for _, part in ipairs(key.parts) do
        if used > receipt.total then
          part.rules.charge(part.s, part.a, used - receipt.total)
          write(part)
        end
      end
      receipt.left = math.max(0, receipt.total - used)
      -- The caller is answered now.
      receipt.returned = verb == 'settle'
      is_closed = receipt_close(key, key.r, receipt, now) and is_closed
      receipts_write(key.r)
      if receipt.charges > 0 then
        key_mark(key)
      end
      has_returned = has_returned or receipt.returned
    end
    if verb == 'cancel' and not has_returned and not is_closed then
      return { 'again', now }
    end
    return { (verb == 'settle' or has_returned) and 1 or 0, now }
  end

  -- Reserve, wait, within and extend.
  local longest = 0
  if takes_less then
    local granted = at_most(keys[1].number)
    if granted < parts[1].cost then
      return denied()
    end
    for _, part in ipairs(parts) do
      part.cost = granted
    end
  else
    for _, key in ipairs(taking) do
      for _, part in ipairs(key.parts) do
        local fits, waited, delay = true, false, 0
        if part.cost > 0 then
          fits, waited, delay = part.rules.reserve_wait(part.s, part.a, max_wait)
        end
        if not fits then
          return denied()
        end
        part.waited = waited or ARGV[part.a + 13] == 'paced'
        longest = math.max(longest, delay or 0)
      end
    end
  end

  -- A waiter needs a receipt only while it waits, and none if it need not wait.
  local has_receipt = verb == 'reserve' or verb == 'extend' or verb == 'wait' and longest > 0
  local is_full = false
  for _, key in ipairs(has_receipt and taking or {}) do
    key.r = key.r or receipts_read(key.receipts, key.deadlines, key.text, #key.parts)
    local is_charged = verb ~= 'extend' or key.parts[1].cost > 0
    is_full = is_charged and not receipts_have_room(key.r, key.counts_until, name) or is_full
  end
  if is_full then
    for _, key in ipairs(taking) do
      if key.r.has_dropped then
        receipts_write(key.r)
      end
    end
    return { 'full', now }
  end

  for _, key in ipairs(taking) do
    local r, cost = key.r, key.parts[1].cost
    local charge = { cost = cost }
    local receipt = r and (key.receipt or { ends = 0, length = 0, total = 0, left = -1, charges = 0 })
    local ends
    if r then
      receipt.name, receipt.made = name, verb == 'wait' and now - HOUR or now
      receipt.length = ttl > 0 and ttl or receipt.length
      if verb == 'reserve' then
        receipt.cancels = ARGV[7] == 'cancel'
      end
      if receipt.length > 0 then
        -- A moment that no clock reaches is not exact.
        ends = math.min(now + receipt.length, 9007199254740991)
        receipt.ends, r.ends = ends, math.max(r.ends, ends)
      end
    end
    for i, part in ipairs(key.parts) do
      if cost > 0 then
        local due = ends and math.min(part.s.due or ends, ends) or part.s.due
        part.s.due = not part.rules.is_written and due or part.s.due
        part.rules.charge(part.s, part.a, cost)
        write(part)
        if due and part.s.due ~= due then
          sliding_log_mark(part.s, due)
        end
      end
      if r then
        local stack, height = part.rules.record(part.s, part.a, r.limits[i], r.number)
        charge[i] = { stack = stack, height = height, waited = part.waited }
      end
    end
    if r then
      if cost > 0 or not key.receipt then
        receipts_add(r, receipt, charge, key.counts_until)
      else
        r.kept = math.max(r.kept, receipt.ends == 0 and now + HOUR or 0)
      end
      if ends then
        receipts_set_deadline(r, receipt, ends)
      end
      receipts_write(r, name, receipts_pack(receipt))
      if ends and cost == 0 then
        key_mark(key)
      end
    end
  end
  return reply
end

return decide()
