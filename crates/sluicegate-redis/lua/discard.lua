-- Discards a receipt that is no longer needed. The charge stays. One call closes a bounded number
-- of charges (close.lua); it is repeated until none is left.
--
-- KEYS      the receipts of each key of the receipt, each followed by its deadlines
-- ARGV[2]   the receipt
-- Reply     1, or 0 while charges are left

local is_closed = true
for i = 1, #KEYS, 2 do
  local receipts = receipts_read(KEYS[i], KEYS[i + 1])
  local receipt = receipts_find(receipts, ARGV[2])
  -- Without anything left to return, it is being discarded.
  if receipt and (receipts_is_open(receipt) or receipt.left == 0) then
    receipt.left = 0
    is_closed = receipt_close(nil, receipts, receipt, now) and is_closed
    receipts_write(receipts)
  end
end
return is_closed and 1 or 0
