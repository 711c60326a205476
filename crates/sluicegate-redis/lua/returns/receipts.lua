-- The open receipts of a key: a hash of receipts to their charges; see receipts.rs.
--
-- Fields    '#': the limits that the charges belong to; any other: when it was made, and per limit
--           the cost, the stack, its height (whole and part) and whether the call had to wait

local RECEIPTS_MAX = 1024
local HOUR = 3600000000

-- Returns all open receipts by name. Those of other limits are void.
local function receipts_open(key, limits)
  local fields, open, known = call('HGETALL', key), {}, false
  for i = 1, #fields, 2 do
    if fields[i] == '#' then
      known = fields[i + 1] == limits
    else
      local numbers = {}
      for number in string.gmatch(fields[i + 1], '%d+') do
        numbers[#numbers + 1] = tonumber(number)
      end
      local receipt = { made = numbers[1] }
      for j = 2, #numbers, 5 do
        receipt[#receipt + 1] = {
          cost = numbers[j],
          stack = numbers[j + 1],
          height = numbers[j + 2],
          part = numbers[j + 3],
          waited = numbers[j + 4] == 1,
        }
      end
      open[fields[i]] = receipt
    end
  end
  if not known and #fields > 0 then
    call('UNLINK', key)
    return {}
  end
  return open
end

local function receipts_write(key, name, receipt)
  local text = { string.format('%.0f', receipt.made) }
  for i = 1, #receipt do
    local charge = receipt[i]
    local waited = charge.waited and 1 or 0
    text[#text + 1] =
      string.format('%.0f %.0f %.0f %.0f %d', charge.cost, charge.stack, charge.height, charge.part, waited)
  end
  call('HSET', key, name, table.concat(text, ' '))
end

-- A receipt is kept until its cost no longer counts, and for at least an hour.
local function receipts_add(key, limits, name, receipt, counts_until)
  local expiry = math.floor((math.max(counts_until, receipt.made + HOUR) - now) / 1000) + slack
  call('HSET', key, '#', limits)
  receipts_write(key, name, receipt)
  call('PEXPIRE', key, math.max(expiry, call('PTTL', key)))
end

-- Returns true if the key has room for one more receipt. If not, receipts that are old and
-- worthless are deleted; only then are all of them read.
local function receipts_have_room(key, limits, counts_until)
  local written_in = call('HGET', key, '#')
  if written_in and written_in ~= limits then
    call('UNLINK', key)
  end
  if call('HLEN', key) <= RECEIPTS_MAX then
    return true
  end
  for name, receipt in pairs(receipts_open(key, limits)) do
    if receipt.made < now - HOUR and counts_until(receipt) <= now then
      call('HDEL', key, name)
    end
  end
  return call('HLEN', key) <= RECEIPTS_MAX
end
