-- Replaces a state by its conversion to another rate, which needs more than 53 bits, unless it has
-- changed meanwhile. Its mark stays.
--
-- KEYS[1]   the state; KEYS[2] the key's receipts; KEYS[3] their deadlines
-- ARGV[2]   the old state; ARGV[3] the new one; ARGV[4] when it is fully recovered
--     5     the place of the limit in its list
-- Reply     1 if it was replaced, 0 if not

local old, new = ARGV[2], ARGV[3]
local found, due = state_split(call('GET', KEYS[1]) or '')
if found ~= old then
  return 0
end
local expiry = math.floor(math.max(0, ARGV[4] - now) / 1000) + slack
call('SET', KEYS[1], state_marked(new, due), 'PX', expiry)
local receipts = receipts_read(KEYS[2], KEYS[3])
local limit = receipts.limits[tonumber(ARGV[5])]
if limit then
  local count, period = string.match(string.sub(old, 21), '^1 (%d+)/(%d+) $')
  local function moment(state)
    local at, _, part = struct.unpack('<ddI4', state)
    return { at = at, part = part }
  end
  gcra_move(limit, tonumber(count), tonumber(period), moment(old), moment(new))
  receipts_write(receipts)
end
return 1
