-- How a state is reported in a reply, by kind of limit.

local function state_report(s)
  return s.raw
end

local function log_report(s, a)
  return sliding_log_report(s, a, tonumber(ARGV[a + 1]))
end
