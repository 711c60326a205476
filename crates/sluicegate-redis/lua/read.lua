-- Returns the state of a key, or of several: for peek and next window. Changes nothing.
--
-- KEYS      one state per limit
-- ARGV      18 per limit: a letter, and the algorithm's arguments
-- Reply     1, the time, and each state, even of another limit;
--           'due', the time: receipts may have expired

local algorithms = {
  b = { read = gcra_read, report = state_report },
  f = { read = fixed_window_read, report = state_report },
  s = { read = sliding_window_read, report = state_report },
  l = { read = sliding_log_read, report = log_report },
  o = { read = smooth_read, report = state_report },
}

local reply = { 1, now }
for i = 1, #KEYS do
  local a = 3 + (i - 1) * 18
  local algorithm = algorithms[ARGV[a - 1]]
  local s, other, due = algorithm.read(KEYS[i], a)
  due = s and s.due or due
  if due and now >= due then
    return { 'due', now }
  end
  reply[i + 2] = s and algorithm.report(s, a) or other or false
end
return reply
