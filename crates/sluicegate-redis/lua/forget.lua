-- Deletes a receipt that is no longer needed. The charge stays.
--
-- KEYS[1]   the key's receipts
-- ARGV[2]   the receipt
-- Reply     1

call('HDEL', KEYS[1], ARGV[2])
-- After the last receipt only the field '#' is left.
if call('HLEN', KEYS[1]) <= 1 then
  call('UNLINK', KEYS[1])
end
return 1
