-- Puts a state in place of another one, if nobody has changed it meanwhile.
--
-- KEYS[1]   the state; KEYS[2] the key's receipts, which were written in the old numbers
-- ARGV[2]   what it was; ARGV[3] what it becomes; ARGV[4] when it has recovered
-- Reply     1 if it was replaced, 0 if not

if call('GET', KEYS[1]) ~= ARGV[2] then
  return 0
end
call('SET', KEYS[1], ARGV[3], 'PX', math.floor(math.max(0, ARGV[4] - now) / 1000) + slack)
call('UNLINK', KEYS[2])
return 1
