-- What is told of a state, for scripts on limits of any kind.

local function raw(s)
  return s.raw
end

local function told_of_log(s, a)
  return sliding_log_told(s, a, tonumber(ARGV[a + 1]))
end
