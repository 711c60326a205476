-- A key notices which of its receipts have expired, before a call that may change it: in the order
-- of their ends, and of those with one end the newest first.

-- Sets the marks of a key's states to the earliest deadline, or removes them. A state that does not
-- exist is written: without one, a check could not see that receipts have expired.
local function key_mark(key)
  local first = call('ZRANGE', key.deadlines, '0', '0', 'WITHSCORES')
  local due = tonumber(first[2])
  local expiry = due and string.format('%d', math.max(0, due - now) / 1000 + slack)
  for _, part in ipairs(key.parts) do
    local name, a, blank = part.key, part.a, nil
    if part.rules.is_written then
      local s = part.rules.read(name, a)
      if s and s.exists and (s.due or nil) ~= due then
        sliding_log_mark(s, due)
      end
      blank = s and not s.exists and due and sliding_log_blank(a, due)
    else
      local raw = call('GET', name)
      local state, marked = state_split(raw or '')
      if raw and marked ~= due then
        call('SET', name, state_marked(state, due), 'KEEPTTL')
      end
      blank = not raw and due and part.rules.blank(a)
      blank = blank and state_marked(blank, due)
    end
    if blank then
      call('SET', name, blank, 'PX', expiry)
    end
  end
end

-- Runs a function under the rules that the key's states were stored for: only what was charged
-- under them can be returned.
local function key_under_stored_rules(key, run)
  local replaced = {}
  local function replace(index, value)
    replaced[#replaced + 1] = { index, ARGV[index] }
    ARGV[index] = value
  end
  for _, part in ipairs(key.parts) do
    local a = part.a
    if part.rules.is_written then
      local s = part.rules.read(part.key, a)
      if s and s.exists then
        replace(a + 2, s.written_for)
      end
    elseif part.rules.convert then
      local raw = call('GET', part.key)
      local tag = raw and string.sub(state_split(raw), 21)
      local count, period = string.match(tag or '', '^1 (%d+)/(%d+) $')
      if count and tag ~= ARGV[a] then
        replace(a, tag)
        replace(a + 1, count)
        replace(a + 9, math.floor(period / count))
        replace(a + 10, math.fmod(period, count))
      end
    end
  end
  run()
  for i = #replaced, 1, -1 do
    ARGV[replaced[i][1]] = replaced[i][2]
  end
end

-- Closes the receipts of a key that have expired, as far as this call may. Returns true if there
-- are more of them. `on_step` is called after each step of the receipt `own`, if its caller was not
-- told yet that anything was returned.
local function key_notice(key, own, on_step)
  local r = receipts_read(key.receipts, key.deadlines, key.text, #key.parts)
  local at = string.format('%d', now)
  local members = call('ZRANGE', key.deadlines, '-inf', at, 'BYSCORE', 'LIMIT', '0', tostring(WORK_MAX))
  local has_more = #members == WORK_MAX
  key_under_stored_rules(key, function()
    for _, member in ipairs(members) do
      local receipt = receipts_find(r, string.sub(member, 9))
      if not receipt then
        call('ZREM', key.deadlines, member)
      elseif work <= 0 then
        has_more = true
        break
      else
        local is_continued = receipt.left >= 0 and not receipt.returned
        if receipt.left < 0 then
          receipt.left = receipt.cancels and receipt.total or 0
        end
        local is_closed = receipt_close(key, r, receipt, receipt.ends)
        if is_continued and receipt.name == own then
          on_step(receipt)
        end
        if not is_closed then
          has_more = true
          break
        end
      end
    end
  end)
  receipts_write(r)
  key_mark(key)
  return has_more
end
