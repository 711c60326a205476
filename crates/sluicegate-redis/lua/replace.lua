-- Replaces a state by its conversion to another rate, which needs more than 53 bits, unless it has
-- changed meanwhile.
--
-- KEYS[1]   the state; KEYS[2] the key's receipts, which are void at the new rate
-- ARGV[2]   the old state; ARGV[3] the new one; ARGV[4] when it is fully recovered
-- Reply     1 if it was replaced, 0 if not

if call('GET', KEYS[1]) ~= ARGV[2] then
  return 0
end
call('SET', KEYS[1], ARGV[3], 'PX', math.floor(math.max(0, ARGV[4] - now) / 1000) + slack)
call('UNLINK', KEYS[2])
return 1
