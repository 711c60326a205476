-- Closes receipts: what is left of them is returned, from the newest charge on. One call closes a
-- bounded number of charges. A receipt with more of them is closed in steps: its deadline is 0, so
-- every later call on its key continues first, and none sees it half closed.

-- How many charges one call closes, times the limits of each.
local WORK_MAX = 24
local work = WORK_MAX
-- How many charges a search for worthless receipts visits.
local VISITED_MAX = 64

-- Closes a receipt as of a moment, as far as this call may. `left` of its charge is returned.
-- Returns true once nothing is left of it. The caller writes the receipts.
local function receipt_close(key, r, receipt, at)
  local called_at = now
  now = at
  while receipt.charges > 0 and work > 0 do
    local charge = receipts_charge(r, receipt, receipt.charges)
    local share = charge and math.min(receipt.left, charge.cost) or 0
    for i = 1, share > 0 and #r.limits or 0 do
      local part = key.parts[i]
      local s = part.rules.read(part.key, part.a)
      if s then
        receipts_measure(r, charge, i)
        local size = part.rules.roll_back(s, part.a, charge[i], share, r.limits[i])
        if size then
          receipt.returned = true
          if not part.rules.is_written then
            part.rules.write(part.key, s, part.a)
          end
          receipts_roll_back(r, charge, i, size)
        end
      end
    end
    receipt.left = receipt.left - share
    receipts_pop(r, receipt, charge)
    work = work - #r.limits
  end
  now = called_at
  if receipt.charges > 0 then
    receipt.ends = math.max(1, at)
    receipts_set_deadline(r, receipt, 0)
    r.ends = math.max(r.ends, now + HOUR)
    r.is_moved = true
    call('HSET', r.key, receipt.name, receipts_pack(receipt))
  end
  return receipt.charges == 0
end

-- Returns true if the key has room for one more charge. If not, receipts that are old and worthless
-- are closed, as far as this call may, from the oldest on. Those with a time to live are skipped,
-- and so are extended ones that are not old yet: those behind them may be older. So is `own`, the
-- receipt that the call extends.
local function receipts_have_room(r, counts_until, own)
  if r.open < RECEIPTS_MAX then
    return true
  end
  local names, b = '', 0
  while b < r.n and #names < VISITED_MAX * NAME do
    b = b + 1
    names = names .. receipts_block(r, b).names
  end
  for first = 1, math.min(#names, VISITED_MAX * NAME), NAME do
    local name = string.sub(names, first, first + NAME - 1)
    -- An extension has no receipt of its own.
    local receipt = name ~= own and receipts_find(r, name)
    local is_open = receipt and receipt.left < 0
    local is_old = is_open and receipt.ends == 0 and receipt.made < now - HOUR
    if is_old then
      -- Of its charges the newest counts for longest.
      local charge = receipts_charge(r, receipt, receipt.charges)
      for i = 1, charge and #r.limits or 0 do
        receipts_measure(r, charge, i)
      end
      if charge and counts_until(charge, r) > now then
        break
      end
    elseif is_open and receipt.ends == 0 and receipt.charges == 1 then
      break
    end
    -- Without anything left to return, it was closed in part.
    if is_old or receipt and receipt.left == 0 then
      receipt.left = 0
      r.has_dropped = true
      if work <= 0 or not receipt_close(nil, r, receipt, now) then
        break
      end
    end
  end
  return r.open < RECEIPTS_MAX
end
