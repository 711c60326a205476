-- The open receipts of a key, in one hash; see receipts.rs for what they mean.
--
-- A return moves all later charges of its stack down, so a receipt does not store its height.
-- Instead it has a cell per limit: what is left of the stack between the receipt before it, in
-- order of creation, and itself. Its height is the sum of the cells up to its own. A return takes
-- from its cell and then from the cells before; a refund takes from the newest cells. A closed
-- receipt leaves the rest of its cell to the next one. The receipts of one stack (a window, or an
-- entry of a log) are a run: they follow one another, and the first one starts at the bottom.
--
-- Cells are kept in blocks, and the header has the sum of each block, so that a call reads the
-- header and one or two blocks, however many receipts are open.
--
-- Fields    '#3', the header: next number, receipts, blocks, limits, length of the text; the text
--           of the limits; per limit its count (0: whole units only) and period, and the stack and
--           height of the last run (-1: closed); per block the first number and how many receipts
--           it has; then cells, one per block: the sum of its last run, and whether that starts in
--           it
--           'b' and a first number, a block: names, cells, then the count and period of each limit
--           a name, a receipt: number, when it was made, and per limit cost, stack, waited
-- Cells     per limit the columns starts ('1' or '0'), wholes and, for buckets, parts. A block that
--           a return has emptied is not rewritten: if its sum is 0, so are its cells.
-- Rates     A bucket's heights are times, so a change of its rate changes all of them. The header
--           is converted at once; a block of a key with many receipts when it is read next.
-- Later     A receipt with an expiry, with more charges or with more keys stores these behind its
--           limits; a further charge is a cell of its own, under another number. The earliest
--           expiry of each block is one more column of the header.

local RECEIPTS_MAX, BLOCK_MAX = 16384, 128
-- How many old receipts one call drops.
local DROPPED_MAX = 8
local HOUR = 3600000000
local NAME = 16
-- Up to this many receipts are converted to another rate at once.
local RESCALED_MAX = 256

local function is_more(whole, part, than, than_part)
  return whole > than or whole == than and part > than_part
end

local function sum_of(whole, part, more, more_part, count)
  whole, part = whole + more, part + more_part
  if part >= count and count > 0 then
    return whole + 1, part - count
  end
  return whole, part
end

-- Returns the difference, which is not negative.
local function difference(whole, part, by, by_part, count)
  if part < by_part then
    return whole - by - 1, part + count - by_part
  end
  return whole - by, part - by_part
end

-- Returns a column with some items replaced.
local function column_put(column, width, from, to, items)
  return string.sub(column, 1, (from - 1) * width) .. items .. string.sub(column, to * width + 1)
end

-- Returns some items of a column, in a table. All are unpacked at once, which is faster.
local function column_items(column, format, width, from, to)
  return { struct.unpack('<' .. string.rep(format, to - from + 1), column, (from - 1) * width + 1) }
end

local function column_sum(column, format, width, from, to)
  local sum = 0
  for first = from, to, 100 do
    local last = math.min(first + 99, to)
    local items = column_items(column, format, width, first, last)
    for i = 1, last - first + 1 do
      sum = sum + items[i]
    end
  end
  return sum
end

-- Parses the cells of `n` items from an offset on. Returns them by limit.
local function cells_read(raw, offset, n, limits)
  local cells = {}
  for i = 1, #limits do
    local wholes = offset + n
    local parts = wholes + 8 * n
    cells[i] = {
      count = limits[i].count,
      starts = string.sub(raw, offset, wholes - 1),
      wholes = string.sub(raw, wholes, parts - 1),
      parts = '',
    }
    offset = parts
    if limits[i].count > 0 then
      offset = parts + 4 * n
      cells[i].parts = string.sub(raw, parts, offset - 1)
    end
  end
  return cells
end

-- Adds packed cells to `out`.
local function cells_write(cells, out)
  for i = 1, #cells do
    out[#out + 1] = cells[i].starts
    out[#out + 1] = cells[i].wholes
    out[#out + 1] = cells[i].parts
  end
end

local function cell_get(c, at)
  local whole = struct.unpack('<d', c.wholes, at * 8 - 7)
  return whole, c.count > 0 and (struct.unpack('<I4', c.parts, at * 4 - 3)) or 0
end

-- Replaces the cells from `from` to `to` by one; `to = from - 1` inserts it.
local function cell_put(c, from, to, whole, part)
  c.wholes = column_put(c.wholes, 8, from, to, struct.pack('<d', whole))
  if c.count > 0 then
    c.parts = column_put(c.parts, 4, from, to, struct.pack('<I4', part))
  end
end

local function cell_set(c, at, whole, part)
  cell_put(c, at, at, whole, part)
end

local function cell_insert(c, at, start, whole, part)
  c.starts = column_put(c.starts, 1, at, at - 1, start)
  cell_put(c, at, at - 1, whole, part)
end

local function cell_remove(c, at)
  c.starts = column_put(c.starts, 1, at, at, '')
  c.wholes = column_put(c.wholes, 8, at, at, '')
  if c.count > 0 then
    c.parts = column_put(c.parts, 4, at, at, '')
  end
end

local function cells_clear(c, from, to)
  c.wholes = column_put(c.wholes, 8, from, to, string.rep('\0', 8 * (to - from + 1)))
  if c.count > 0 then
    c.parts = column_put(c.parts, 4, from, to, string.rep('\0', 4 * (to - from + 1)))
  end
end

-- Returns the sum of the cells of one run up to a cell, and whether the run starts among them.
local function cells_run(c, to)
  local back = string.find(string.reverse(string.sub(c.starts, 1, to)), '1', 1, true)
  local from = back and to - back + 1 or 1
  local whole, part = column_sum(c.wholes, 'd', 8, from, to), 0
  if c.count > 0 then
    part = column_sum(c.parts, 'I4', 4, from, to)
    local carried = math.floor(part / c.count)
    whole, part = whole + carried, part - carried * c.count
  end
  return whole, part, back ~= nil
end

-- Takes from a cell and those before it. Returns the last cell that was taken from, and how much of
-- it; if all cells were not enough, 0 and the rest.
local function cells_take(c, at, whole, part)
  local here, here_part = cell_get(c, at)
  if is_more(whole, part, here, here_part) then
    local wholes = column_items(c.wholes, 'd', 8, 1, at)
    local parts = c.count > 0 and column_items(c.parts, 'I4', 4, 1, at)
    local top = at
    while at > 0 do
      here, here_part = wholes[at], parts and parts[at] or 0
      if not is_more(whole, part, here, here_part) then
        break
      end
      whole, part = difference(whole, part, here, here_part, c.count)
      at = at - 1
    end
    cells_clear(c, at + 1, top)
  end
  if at > 0 then
    cell_set(c, at, difference(here, here_part, whole, part, c.count))
  end
  return at, whole, part
end

-- Writes a limit's cells, which are the differences between heights.
local function cells_set(c, count, wholes, parts)
  c.count = count
  local columns = { {}, {} }
  for at = 1, #wholes do
    columns[1][at], columns[2][at] = struct.pack('<d', wholes[at]), struct.pack('<I4', parts[at])
  end
  c.wholes, c.parts = table.concat(columns[1]), table.concat(columns[2])
end

-- Converts cells to another rate. `convert` maps a height to one at that rate. `below` is the sum
-- of the cells before these, and `new_below` is that sum at the new rate. Returns both sums after
-- the last cell.
local function cells_rescale(c, change, convert, below, new_below)
  local n = #c.starts
  local wholes, parts = column_items(c.wholes, 'd', 8, 1, n), column_items(c.parts, 'I4', 4, 1, n)
  local whole, part, last, last_part = below[1], below[2], new_below[1], new_below[2]
  for at = 1, n do
    if string.byte(c.starts, at) == 49 then
      whole, part, last, last_part = 0, 0, 0, 0
    end
    whole, part = sum_of(whole, part, wholes[at], parts[at], change.count)
    local height, height_part = convert(whole, part)
    if is_more(last, last_part, height, height_part) then
      height, height_part = last, last_part
    end
    wholes[at], parts[at] = difference(height, height_part, last, last_part, change.new_count)
    last, last_part = height, height_part
  end
  cells_set(c, change.new_count, wholes, parts)
  return { whole, part }, { last, last_part }
end

-- Returns the receipts of a key. `text` names its limits, and `rates` has the rates of its buckets,
-- with a count of 0 for other limits. Receipts of other limits are void, and receipts of another
-- rate are worth nothing. Without a `text` the limits are those of the receipts.
local function receipts_read(key, text, rates)
  local raw = call('HGET', key, '#3')
  local r = { key = key, text = text, number = 1, open = 0, n = 0, limits = {}, firsts = '', sizes = '', blocks = {} }
  if raw then
    local number, open, n, limits, length = struct.unpack('<dI4I4I4I4', raw)
    local written_in = string.sub(raw, 25, 24 + length)
    if not text or written_in == text then
      r.text, r.number, r.open, r.n = written_in, number, open, n
      local offset = 25 + length
      for i = 1, limits do
        local count, period, stack, whole, part = struct.unpack('<ddddI4', raw, offset)
        r.limits[i] = { count = count, period = period, stack = stack, whole = whole, part = part }
        offset = offset + 36
      end
      r.firsts = string.sub(raw, offset, offset + 8 * n - 1)
      r.sizes = string.sub(raw, offset + 8 * n, offset + 10 * n - 1)
      r.sums = cells_read(raw, offset + 10 * n, n, r.limits)
      for i = 1, #(rates or {}) do
        local limit, rate = r.limits[i], rates[i]
        if limit.count ~= rate.count or limit.period ~= rate.period then
          limit.count, limit.period, limit.whole, limit.part = rate.count, rate.period, 0, 0
          r.sums[i].count = rate.count
          cells_clear(r.sums[i], 1, n)
        end
      end
      return r
    end
    call('UNLINK', key)
  end
  for i = 1, #(rates or {}) do
    r.limits[i] = { count = rates[i].count, period = rates[i].period, stack = -1, whole = 0, part = 0 }
  end
  r.sums = cells_read('', 1, 0, r.limits)
  return r
end

local function receipts_first(r, b)
  return string.sub(r.firsts, b * 8 - 7, b * 8)
end

local function receipts_size(r, b)
  return (struct.unpack('<I2', r.sizes, b * 2 - 1))
end

local function receipts_resize(r, b, size)
  r.sizes = column_put(r.sizes, 2, b, b, struct.pack('<I2', size))
end

-- Converts a block's cells to the rate of the header. Its last run is measured from its end, whose
-- height is known, so that heights are exact to one part of a microsecond. Earlier runs are of
-- states that were lost, and worth nothing.
local function block_rescale(c, count, period, limit, sum, sum_part)
  c.count = count
  local n = #c.starts
  local total, total_part = cells_run(c, n)
  local from = n - (string.find(string.reverse(c.starts), '1', 1, true) or n) + 1
  cells_clear(c, 1, from - 1)
  local change = rate_change(count, period, limit.count, limit.period)
  cells_rescale(c, change, function(whole, part)
    local above, above_part = difference(total, total_part, whole, part, count)
    above, above_part = rescaled(change, above, above_part)
    if not above or is_more(above, above_part, sum, sum_part) then
      return 0, 0
    end
    return difference(sum, sum_part, above, above_part, limit.count)
  end, { 0, 0 }, { 0, 0 })
end

-- Returns a block, which is written by `receipts_write`. Its last run may hold more than the header
-- says: the caller is about to take the excess from it.
local function receipts_block(r, b, more, more_part)
  local first = receipts_first(r, b)
  local block = r.blocks[first]
  if not block then
    local raw, n = call('HGET', r.key, 'b' .. first), receipts_size(r, b)
    local cells = cells_read(raw, NAME * n + 1, n, r.limits)
    block = { names = string.sub(raw, 1, NAME * n), cells = cells }
    for i = 1, #r.limits do
      local limit = r.limits[i]
      local whole, part = cell_get(r.sums[i], b)
      whole, part = sum_of(whole, part, more and more[i] or 0, more_part and more_part[i] or 0, limit.count)
      local count, period = struct.unpack('<dd', raw, #raw - 16 * (#r.limits - i + 1) + 1)
      if whole == 0 and part == 0 and string.byte(r.sums[i].starts, b) == 48 then
        cells_clear(cells[i], 1, n)
      elseif count ~= limit.count or period ~= limit.period then
        block_rescale(cells[i], count, period, limit, whole, part)
      end
    end
    r.blocks[first] = block
  end
  return block
end

local function receipts_write(r)
  if r.open == 0 then
    call('UNLINK', r.key)
    return
  end
  local out = { struct.pack('<dI4I4I4I4', r.number, r.open, r.n, #r.limits, #r.text), r.text }
  for i = 1, #r.limits do
    local limit = r.limits[i]
    out[#out + 1] = struct.pack('<ddddI4', limit.count, limit.period, limit.stack, limit.whole, limit.part)
  end
  out[#out + 1] = r.firsts
  out[#out + 1] = r.sizes
  cells_write(r.sums, out)
  call('HSET', r.key, '#3', table.concat(out))
  for first, block in pairs(r.blocks) do
    out = { block.names }
    cells_write(block.cells, out)
    for i = 1, #r.limits do
      out[#out + 1] = struct.pack('<dd', r.limits[i].count, r.limits[i].period)
    end
    call('HSET', r.key, 'b' .. first, table.concat(out))
  end
end

-- Finds an open receipt: its number, when it was made, its charges, its block and its index there.
local function receipts_find(r, name)
  local raw = r.open > 0 and call('HGET', r.key, name)
  if not raw then
    return nil
  end
  local number, made = struct.unpack('<dd', raw)
  local receipt = { name = name, made = made }
  for i = 1, #r.limits do
    local cost, stack, waited = struct.unpack('<ddB', raw, 17 * i)
    receipt[i] = { cost = cost, stack = stack, waited = waited == 1 }
  end
  -- The last block whose first number is not larger.
  local low, high = 1, r.n
  while low < high do
    local middle = math.ceil((low + high) / 2)
    if struct.unpack('<d', r.firsts, middle * 8 - 7) <= number then
      low = middle
    else
      high = middle - 1
    end
  end
  local names, at = receipts_block(r, low).names, 0
  repeat
    at = string.find(names, name, at + 1, true)
  until not at or at % NAME == 1
  receipt.block, receipt.at = low, at and (at - 1) / NAME + 1
  return at and receipt
end

-- Sets the height of a receipt under a limit.
local function receipts_measure(r, receipt, i)
  local charge = receipt[i]
  local starts
  charge.height, charge.part, starts = cells_run(receipts_block(r, receipt.block).cells[i], receipt.at)
  if not starts and receipt.block > 1 then
    local below, below_part = cells_run(r.sums[i], receipt.block - 1)
    charge.height, charge.part = sum_of(charge.height, charge.part, below, below_part, r.limits[i].count)
  end
  return charge
end

-- Takes from the end of a block, and from the blocks before it.
local function receipts_take(r, i, b, whole, part)
  local at, rest, rest_part = cells_take(r.sums[i], b, whole, part)
  if at > 0 then
    local block = receipts_block(r, at, { [i] = rest }, { [i] = rest_part })
    cells_take(block.cells[i], receipts_size(r, at), rest, rest_part)
  end
end

-- Removes a piece of the stack below a receipt.
local function receipts_roll_back(r, receipt, i, whole, part)
  local b, limit, sums = receipt.block, r.limits[i], r.sums[i]
  local cells = receipts_block(r, b).cells[i]
  local is_last = not string.find(cells.starts, '1', receipt.at + 1, true)
  local at, rest, rest_part = cells_take(cells, receipt.at, whole, part)
  if at > 0 then
    rest, rest_part = 0, 0
  end
  if is_last then
    local taken, taken_part = difference(whole, part, rest, rest_part, limit.count)
    local here, here_part = cell_get(sums, b)
    cell_set(sums, b, difference(here, here_part, taken, taken_part, limit.count))
    if not string.find(sums.starts, '1', b + 1, true) then
      limit.whole, limit.part = difference(limit.whole, limit.part, whole, part, limit.count)
    end
  end
  if at == 0 and b > 1 then
    receipts_take(r, i, b - 1, rest, rest_part)
  end
end

-- Lowers the receipts of a stack to its height after a refund. Only the last run is lowered:
-- nothing is charged to an earlier stack any more, so what is left of that stack bounds its
-- returns.
local function receipts_cap(r, i, stack, whole, part)
  local limit = r.limits[i]
  if limit.stack == stack and is_more(limit.whole, limit.part, whole, part) then
    receipts_take(r, i, r.n, difference(limit.whole, limit.part, whole, part, limit.count))
    limit.whole, limit.part = whole, part
  end
end

-- Converts the heights under a bucket to another rate, from a moment on, as its state is converted:
-- the whole header, and all blocks if they are few. If they are many, only some are converted at
-- once: the block in which the moment lies, since what has leaked before it is not converted, and
-- blocks that were read for another limit, because they are written at the new rate.
local function receipts_rescale(r, i, change, from)
  local limit = r.limits[i]
  local function convert(whole, part)
    if whole < from then
      return whole, 0
    end
    local height, height_part = rescaled(change, whole - from, part)
    if not height then
      return from, 0
    end
    return from + height, height_part
  end
  local sums, below = r.sums[i], { 0, 0 }
  for b = 1, r.n do
    local whole, part = cell_get(sums, b)
    if string.byte(sums.starts, b) == 48 then
      whole, part = sum_of(below[1], below[2], whole, part, change.count)
    end
    local is_read = r.open <= RESCALED_MAX or r.blocks[receipts_first(r, b)]
    if is_read or below[1] < from and whole >= from then
      cells_rescale(receipts_block(r, b).cells[i], change, convert, below, { convert(below[1], below[2]) })
    end
    below = { whole, part }
  end
  cells_rescale(sums, change, convert, { 0, 0 }, { 0, 0 })
  limit.count, limit.period = change.new_count, change.new_period
  limit.whole, limit.part = convert(limit.whole, limit.part)
end

-- Merges a block with the next one.
local function receipts_merge(r, b)
  local block, next_block = receipts_block(r, b), receipts_block(r, b + 1)
  local field = receipts_first(r, b + 1)
  for i = 1, #r.limits do
    local cells, more, sums = block.cells[i], next_block.cells[i], r.sums[i]
    cells.starts, cells.wholes = cells.starts .. more.starts, cells.wholes .. more.wholes
    cells.parts = cells.parts .. more.parts
    local whole, part = cell_get(sums, b + 1)
    if string.byte(sums.starts, b + 1) == 49 then
      sums.starts = column_put(sums.starts, 1, b, b, '1')
    else
      local before, before_part = cell_get(sums, b)
      whole, part = sum_of(before, before_part, whole, part, sums.count)
    end
    cell_set(sums, b, whole, part)
    cell_remove(sums, b + 1)
  end
  block.names = block.names .. next_block.names
  receipts_resize(r, b, #block.names / NAME)
  r.firsts, r.sizes = column_put(r.firsts, 8, b + 1, b + 1, ''), column_put(r.sizes, 2, b + 1, b + 1, '')
  r.n, r.blocks[field] = r.n - 1, nil
  call('HDEL', r.key, 'b' .. field)
end

-- Removes a receipt's cell under one limit; the rest of it goes to the next receipt of the stack.
local function receipts_remove_cell(r, i, b, at, size)
  local limit, sums, cells = r.limits[i], r.sums[i], receipts_block(r, b).cells[i]
  local whole, part = cell_get(cells, at)
  local is_start = string.byte(cells.starts, at) == 49
  local heirs, heir = cells, at + 1
  if at == size then
    heirs, heir = b < r.n and receipts_block(r, b + 1).cells[i], 1
  end
  local is_inherited = heirs and string.byte(heirs.starts, heir) == 48
  if is_inherited then
    local here, here_part = cell_get(heirs, heir)
    cell_set(heirs, heir, sum_of(here, here_part, whole, part, limit.count))
    if is_start then
      heirs.starts = column_put(heirs.starts, 1, heir, heir, '1')
    end
  end
  cell_remove(cells, at)
  -- Within a block the sum of its last run stays.
  if at == size then
    if is_inherited then
      if not string.find(heirs.starts, '1', 2, true) then
        local here, here_part = cell_get(sums, b + 1)
        cell_set(sums, b + 1, sum_of(here, here_part, whole, part, limit.count))
      end
      if is_start then
        sums.starts = column_put(sums.starts, 1, b + 1, b + 1, '1')
      end
    elseif not heirs and is_start then
      limit.stack, limit.whole, limit.part = -1, 0, 0
    elseif not heirs then
      limit.whole, limit.part = difference(limit.whole, limit.part, whole, part, limit.count)
    end
    local here, here_part, starts = cells_run(cells, size - 1)
    cell_set(sums, b, here, here_part)
    sums.starts = column_put(sums.starts, 1, b, b, starts and '1' or '0')
  end
end

-- Removes a receipt. Its charges stay.
local function receipts_remove(r, receipt)
  local b, at = receipt.block, receipt.at
  local size = receipts_size(r, b)
  call('HDEL', r.key, receipt.name)
  r.open = r.open - 1
  for i = 1, #r.limits do
    receipts_remove_cell(r, i, b, at, size)
  end
  local block = receipts_block(r, b)
  block.names = column_put(block.names, NAME, at, at, '')
  receipts_resize(r, b, size - 1)
  if b < r.n and size - 1 + receipts_size(r, b + 1) <= BLOCK_MAX then
    receipts_merge(r, b)
  elseif b > 1 and size - 1 + receipts_size(r, b - 1) <= BLOCK_MAX then
    receipts_merge(r, b - 1)
  end
end

-- Returns true if the key has room for one more receipt. If not, a few of the oldest are dropped,
-- if they are old and worthless.
local function receipts_have_room(r, counts_until)
  for _ = 1, r.open < RECEIPTS_MAX and 0 or DROPPED_MAX do
    local oldest = receipts_find(r, string.sub(receipts_block(r, 1).names, 1, NAME))
    if oldest.made >= now - HOUR then
      break
    end
    for i = 1, #r.limits do
      receipts_measure(r, oldest, i)
    end
    if counts_until(oldest) > now then
      break
    end
    receipts_remove(r, oldest)
  end
  return r.open < RECEIPTS_MAX
end

-- Adds a receipt. It is kept until its cost no longer counts, and for at least an hour.
local function receipts_add(r, name, receipt, counts_until)
  local b, size = r.n, r.n > 0 and receipts_size(r, r.n) or BLOCK_MAX
  local number = struct.pack('<d', r.number)
  if size == BLOCK_MAX then
    b, size = b + 1, 0
    r.n, r.firsts, r.sizes = b, r.firsts .. number, r.sizes .. '\0\0'
    r.blocks[number] = { names = '', cells = cells_read('', 1, 0, r.limits) }
    for i = 1, #r.limits do
      cell_insert(r.sums[i], b, '0', 0, 0)
    end
  end
  local block, out = receipts_block(r, b), { number, struct.pack('<d', receipt.made) }
  for i = 1, #r.limits do
    local charge, limit, sums = receipt[i], r.limits[i], r.sums[i]
    local whole, part = charge.height, charge.part
    -- Heights of a stack never fall while its state is kept.
    if charge.stack ~= limit.stack or is_more(limit.whole, limit.part, whole, part) then
      cell_insert(block.cells[i], size + 1, '1', whole, part)
      cell_set(sums, b, whole, part)
      sums.starts = column_put(sums.starts, 1, b, b, '1')
    else
      whole, part = difference(whole, part, limit.whole, limit.part, limit.count)
      cell_insert(block.cells[i], size + 1, '0', whole, part)
      local here, here_part = cell_get(sums, b)
      cell_set(sums, b, sum_of(here, here_part, whole, part, limit.count))
    end
    limit.stack, limit.whole, limit.part = charge.stack, charge.height, charge.part
    out[#out + 1] = struct.pack('<ddB', charge.cost, charge.stack, charge.waited and 1 or 0)
  end
  block.names = block.names .. name
  receipts_resize(r, b, size + 1)
  r.number, r.open = r.number + 1, r.open + 1
  call('HSET', r.key, name, table.concat(out))
  receipts_write(r)
  local expiry = math.floor((math.max(counts_until, receipt.made + HOUR) - now) / 1000) + slack
  call('PEXPIRE', r.key, string.format('%d', math.max(expiry, call('PTTL', r.key))))
end
