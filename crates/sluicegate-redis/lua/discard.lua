-- Discards a receipt that is no longer needed. The charge stays.
--
-- KEYS[1]   the key's receipts
-- ARGV[2]   the receipt
-- Reply     1

local receipts = receipts_read(KEYS[1])
local receipt = receipts_find(receipts, ARGV[2])
if receipt then
  receipts_remove(receipts, receipt)
  receipts_write(receipts)
end
return 1
