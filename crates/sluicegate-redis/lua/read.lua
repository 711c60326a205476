-- What is known of a key, or of several: for peek and next window. Nothing is changed.
--
-- KEYS      a state for each limit
-- ARGV      for each limit 15: a letter, and the algorithm's arguments
-- Reply     1, the time, and each state, also one in other numbers

local algorithms = {
  b = { read = gcra_read, told = raw },
  f = { read = fixed_window_read, told = raw },
  s = { read = sliding_window_read, told = raw },
  l = { read = sliding_log_read, told = told_of_log },
  o = { read = smooth_read, told = raw },
}

local told = { 1, now }
for i = 1, #KEYS do
  local a = 3 + (i - 1) * 15
  local algorithm = algorithms[ARGV[a - 1]]
  local s, other = algorithm.read(KEYS[i], a)
  told[i + 2] = s and algorithm.told(s, a) or other or false
end
return told
