-- Converts the state of a bucket that was written at another rate, and the key's receipts with it.
-- The call that needs it does this first, in one step, so that no other process can change the
-- state in between.
--
-- ARGV a+14   period     of the rate, or 0 if a conversion keeps the moment of full recovery
--      a+15   receipts   the index of the key's receipts in KEYS; then its deadlines
--      a+16   place      of the limit in its list
--
-- A state that needs numbers of 2^53 or more stays as it is, and so does one that cannot be read.
-- Both are returned. A state that stays is converted for this call only.

-- The receipts whose reference was moved, by their index in KEYS. They are read and written once
-- for all limits of a list.
local converted = {}

local function gcra_convert(raw, key, a, stays, due)
  local old_count, old_period = string.match(string.sub(raw, 21), '^1 (%d+)/(%d+) $')
  if not old_count then
    return nil
  end
  local count, period = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 14])
  old_count, old_period = tonumber(old_count), tonumber(old_period)
  local at, latest, part = struct.unpack('<ddI4', raw)
  -- A damaged state is not read.
  local function is_time(number)
    return number >= 0 and number < 9007199254740992 and number == math.floor(number)
  end
  if not is_time(at) or not is_time(latest) or part >= old_count or old_period == 0 then
    return nil
  end
  -- A state that only has a mark stays that of an unseen key.
  if at == 0 and latest == 0 then
    local blank = gcra_blank(a)
    if not stays and blank then
      call('SET', key, state_marked(blank, due), 'KEEPTTL')
    elseif not stays then
      call('UNLINK', key)
    end
    return { raw = raw, at = 0, latest = 0, part = 0, due = due }
  end
  local change = rate_change(old_count, period > 0 and old_period or 0, count, period)
  -- After a step back of the clock, usage is measured at the latest known time.
  local from = period > 0 and math.max(now, math.min(latest, part > 0 and at + 1 or at)) or 0
  local whole, new_part = 0, 0
  if at >= from then
    whole, new_part = rescaled(change, at - from, part)
  end
  if not whole or period > 0 and whole > CENTURY then
    return nil
  end
  local s = { raw = raw, at = from + whole, latest = math.max(latest, now), part = new_part, due = due }
  if stays then
    return s
  end
  gcra_store(key, s, a)
  local index = tonumber(ARGV[a + 15])
  local receipts = converted[index] or receipts_read(KEYS[index], KEYS[index + 1])
  local limit = receipts.limits[tonumber(ARGV[a + 16])]
  if limit then
    gcra_move(limit, old_count, old_period, { at = at, part = part }, s)
    converted[index] = receipts
  end
  return s
end

local function converted_write()
  for _, receipts in pairs(converted) do
    receipts_write(receipts)
  end
end
