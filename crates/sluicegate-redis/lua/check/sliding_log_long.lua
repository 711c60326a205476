  -- A log that is too long to be read at once, with the functions of sliding_log.lua.
  local s, other = sliding_log_read(key, 2)
  if not s then
    return 'o' .. seconds .. ' ' .. micros .. ' ' .. other
  elseif s.written_for ~= period then
    return 'o' .. seconds .. ' ' .. micros .. ' '
  elseif s.due and now >= s.due then
    return 'd' .. seconds .. ' ' .. micros .. ' '
  end
  local allowed = sliding_log_try(s, 2)
  local reply = sliding_log_report(s, 2, cost) or ''
  if allowed then
    sliding_log_write(key, s, 2)
  end
  return (allowed and '1' or '0') .. seconds .. ' ' .. micros .. ' ' .. reply
