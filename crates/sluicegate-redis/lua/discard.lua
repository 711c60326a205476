-- Discards a receipt that is no longer needed. The charge stays.
--
-- KEYS      the receipts of each key of the receipt, each followed by its deadlines
-- ARGV[2]   the receipt
-- Reply     1

for i = 1, #KEYS, 2 do
  local receipts = receipts_read(KEYS[i], KEYS[i + 1])
  local receipt = receipts_find(receipts, ARGV[2])
  if receipt and receipts_is_open(receipt) then
    receipt.left = 0
    receipt_close(nil, receipts, receipt, now)
    receipts_write(receipts)
  end
end
return 1
