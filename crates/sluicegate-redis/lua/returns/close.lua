-- Closes receipts: what is left of them is returned, from the newest charge on. One call closes a
-- bounded number of charges. A receipt with more of them is closed in steps: its deadline is 0, so
-- every later call on its key continues first, and none sees it half closed.

-- How many charges one call closes, times the limits of each.
local WORK_MAX = 24
local work = WORK_MAX

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
