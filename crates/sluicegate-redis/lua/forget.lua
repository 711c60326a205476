-- Forgets a receipt that is not needed any more: its caller has acted.
--
-- KEYS[1]   the key's receipts
-- ARGV[2]   the receipt

call('HDEL', KEYS[1], ARGV[2])
-- What is left of the last one is what they were written in.
if call('HLEN', KEYS[1]) <= 1 then
  call('UNLINK', KEYS[1])
end
return 1
