-- The open receipts of a key, in one hash; see receipts.rs for what they mean.
--
-- A return moves all later charges of its stack down, so a receipt does not store its height.
-- Instead it has a cell per limit: what is left of the stack between the receipt before it, in
-- order of creation, and itself. Its height is the sum of the cells up to its own. A return takes
-- from its cell and then from the cells before; a refund takes from the newest cells. A closed
-- receipt leaves the rest of its cell to the next one. The receipts of one stack (a window, an
-- entry of a log, or all that a bucket was charged) are a run: they follow one another, and the
-- first one starts at the bottom.
--
-- Cells are in units of cost, whatever the rate of a bucket. A bucket has a reference: a height of
-- its stack, and the moment at which that has leaked. The distance from there, in units, is the
-- time that a receipt's charge has left; see gcra.lua. So a change of rate moves the reference,
-- and no receipt.
--
-- Cells are kept in blocks, and the header has the sum of each block, so that a call reads the
-- header and one or two blocks, however many receipts are open.
--
-- Fields    '#4', the header: next number, receipts, blocks, limits, length of the text; the text
--           of the limits; per limit the stack of the last run (-1: closed) and its height, and
--           the reference: its height, and its moment in microseconds and parts; per block the
--           first number and how many receipts it has; then cells, one per block: the sum of its
--           last run, and whether that starts in it
--           'b' and a first number, a block: names, cells
--           a name, a receipt: number, when it was made, and per limit cost, stack, waited
-- Cells     per limit the columns starts ('1' or '0') and units. A block that a return has emptied
--           is not rewritten: if its sum is 0, so are its cells.
-- Later     A receipt with an expiry, with more charges or with more keys stores these behind its
--           limits; a further charge is a cell of its own, under another number. The earliest
--           expiry of each block is one more column of the header.

local RECEIPTS_MAX, BLOCK_MAX = 16384, 128
-- How many old receipts one call drops.
local DROPPED_MAX = 8
local HOUR = 3600000000
local NAME = 16

-- Returns a column with some items replaced.
local function column_put(column, width, from, to, items)
  return string.sub(column, 1, (from - 1) * width) .. items .. string.sub(column, to * width + 1)
end

-- Returns some items of a column of doubles, in a table. All are unpacked at once, which is faster.
local function column_items(column, from, to)
  return { struct.unpack('<' .. string.rep('d', to - from + 1), column, from * 8 - 7) }
end

local function column_sum(column, from, to)
  local sum = 0
  for first = from, to, 100 do
    local last = math.min(first + 99, to)
    local items = column_items(column, first, last)
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
    local units = offset + n
    cells[i] = { starts = string.sub(raw, offset, units - 1), units = string.sub(raw, units, units + 8 * n - 1) }
    offset = units + 8 * n
  end
  return cells
end

-- Adds packed cells to `out`.
local function cells_write(cells, out)
  for i = 1, #cells do
    out[#out + 1] = cells[i].starts
    out[#out + 1] = cells[i].units
  end
end

local function cell_get(c, at)
  return (struct.unpack('<d', c.units, at * 8 - 7))
end

local function cell_set(c, at, units)
  c.units = column_put(c.units, 8, at, at, struct.pack('<d', units))
end

local function cell_insert(c, at, start, units)
  c.starts = column_put(c.starts, 1, at, at - 1, start)
  c.units = column_put(c.units, 8, at, at - 1, struct.pack('<d', units))
end

local function cell_remove(c, at)
  c.starts = column_put(c.starts, 1, at, at, '')
  c.units = column_put(c.units, 8, at, at, '')
end

local function cells_clear(c, from, to)
  c.units = column_put(c.units, 8, from, to, string.rep('\0', 8 * (to - from + 1)))
end

-- Returns the sum of the cells of one run up to a cell, and whether the run starts among them.
local function cells_run(c, to)
  local back = string.find(string.reverse(string.sub(c.starts, 1, to)), '1', 1, true)
  return column_sum(c.units, back and to - back + 1 or 1, to), back ~= nil
end

-- Takes from a cell and those before it. Returns the last cell that was taken from, and how much of
-- it; if all cells were not enough, 0 and the rest.
local function cells_take(c, at, units)
  local here = cell_get(c, at)
  if units > here then
    local items, top = column_items(c.units, 1, at), at
    while at > 0 and units > items[at] do
      units = units - items[at]
      at = at - 1
    end
    here = items[at]
    cells_clear(c, at + 1, top)
  end
  if at > 0 then
    cell_set(c, at, here - units)
  end
  return at, units
end

-- Returns the receipts of a key. `text` names its limits, and there are `limits` of them. Receipts
-- of other limits are void. Without a `text` the limits are those of the receipts.
local function receipts_read(key, text, limits)
  local raw = call('HGET', key, '#4')
  local r = { key = key, text = text, number = 1, open = 0, n = 0, limits = {}, firsts = '', sizes = '', blocks = {} }
  if raw then
    local number, open, n, count, length = struct.unpack('<dI4I4I4I4', raw)
    local written_in = string.sub(raw, 25, 24 + length)
    if not text or written_in == text then
      r.text, r.number, r.open, r.n = written_in, number, open, n
      local offset = 25 + length
      for i = 1, count do
        local stack, height, reference, at, part = struct.unpack('<ddddI4', raw, offset)
        r.limits[i] = { stack = stack, height = height, reference = reference, at = at, part = part }
        offset = offset + 36
      end
      r.firsts = string.sub(raw, offset, offset + 8 * n - 1)
      r.sizes = string.sub(raw, offset + 8 * n, offset + 10 * n - 1)
      r.sums = cells_read(raw, offset + 10 * n, n, r.limits)
      return r
    end
    call('UNLINK', key)
  end
  for i = 1, limits or 0 do
    r.limits[i] = { stack = -1, height = 0, reference = 0, at = 0, part = 0 }
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

-- Returns a block, which is written by `receipts_write`.
local function receipts_block(r, b)
  local first = receipts_first(r, b)
  local block = r.blocks[first]
  if not block then
    local raw, n = call('HGET', r.key, 'b' .. first), receipts_size(r, b)
    block = { names = string.sub(raw, 1, NAME * n), cells = cells_read(raw, NAME * n + 1, n, r.limits) }
    for i = 1, #r.limits do
      if cell_get(r.sums[i], b) == 0 and string.byte(r.sums[i].starts, b) == 48 then
        cells_clear(block.cells[i], 1, n)
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
    out[#out + 1] = struct.pack('<ddddI4', limit.stack, limit.height, limit.reference, limit.at, limit.part)
  end
  out[#out + 1] = r.firsts
  out[#out + 1] = r.sizes
  cells_write(r.sums, out)
  call('HSET', r.key, '#4', table.concat(out))
  for first, block in pairs(r.blocks) do
    out = { block.names }
    cells_write(block.cells, out)
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
  local charge, starts = receipt[i]
  charge.height, starts = cells_run(receipts_block(r, receipt.block).cells[i], receipt.at)
  if not starts and receipt.block > 1 then
    charge.height = charge.height + cells_run(r.sums[i], receipt.block - 1)
  end
  return charge
end

-- Takes from the end of a block, and from the blocks before it.
local function receipts_take(r, i, b, units)
  local at, rest = cells_take(r.sums[i], b, units)
  if at > 0 then
    cells_take(receipts_block(r, at).cells[i], receipts_size(r, at), rest)
  end
end

-- Removes a piece of the stack below a receipt.
local function receipts_roll_back(r, receipt, i, units)
  local b, limit, sums = receipt.block, r.limits[i], r.sums[i]
  local cells = receipts_block(r, b).cells[i]
  local is_last = not string.find(cells.starts, '1', receipt.at + 1, true)
  local at, rest = cells_take(cells, receipt.at, units)
  if at > 0 then
    rest = 0
  end
  if is_last then
    cell_set(sums, b, cell_get(sums, b) - (units - rest))
    if not string.find(sums.starts, '1', b + 1, true) then
      limit.height = limit.height - units
    end
  end
  if at == 0 and b > 1 then
    receipts_take(r, i, b - 1, rest)
  end
end

-- Lowers the receipts of a stack to its height after a refund. Only the last run is lowered:
-- nothing is charged to an earlier stack any more, so what is left of that stack bounds its
-- returns.
local function receipts_cap(r, i, stack, height)
  local limit = r.limits[i]
  if limit.stack == stack and limit.height > height then
    receipts_take(r, i, r.n, limit.height - height)
    limit.height = height
  end
end

-- Merges a block with the next one.
local function receipts_merge(r, b)
  local block, next_block = receipts_block(r, b), receipts_block(r, b + 1)
  local field = receipts_first(r, b + 1)
  for i = 1, #r.limits do
    local cells, more, sums = block.cells[i], next_block.cells[i], r.sums[i]
    cells.starts, cells.units = cells.starts .. more.starts, cells.units .. more.units
    local units = cell_get(sums, b + 1)
    if string.byte(sums.starts, b + 1) == 49 then
      sums.starts = column_put(sums.starts, 1, b, b, '1')
    else
      units = units + cell_get(sums, b)
    end
    cell_set(sums, b, units)
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
  local units = cell_get(cells, at)
  local is_start = string.byte(cells.starts, at) == 49
  local heirs, heir = cells, at + 1
  if at == size then
    heirs, heir = b < r.n and receipts_block(r, b + 1).cells[i], 1
  end
  local is_inherited = heirs and string.byte(heirs.starts, heir) == 48
  if is_inherited then
    cell_set(heirs, heir, cell_get(heirs, heir) + units)
    if is_start then
      heirs.starts = column_put(heirs.starts, 1, heir, heir, '1')
    end
  end
  cell_remove(cells, at)
  -- Within a block the sum of its last run stays.
  if at == size then
    if is_inherited then
      if not string.find(heirs.starts, '1', 2, true) then
        cell_set(sums, b + 1, cell_get(sums, b + 1) + units)
      end
      if is_start then
        sums.starts = column_put(sums.starts, 1, b + 1, b + 1, '1')
      end
    elseif not heirs and is_start then
      limit.stack, limit.height = -1, 0
    elseif not heirs then
      limit.height = limit.height - units
    end
    local here, starts = cells_run(cells, size - 1)
    cell_set(sums, b, here)
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
      cell_insert(r.sums[i], b, '0', 0)
    end
  end
  local block, out = receipts_block(r, b), { number, struct.pack('<d', receipt.made) }
  for i = 1, #r.limits do
    local charge, limit, sums = receipt[i], r.limits[i], r.sums[i]
    -- Heights of a stack never fall while its state is kept.
    if charge.stack ~= limit.stack or limit.height > charge.height then
      cell_insert(block.cells[i], size + 1, '1', charge.height)
      cell_set(sums, b, charge.height)
      sums.starts = column_put(sums.starts, 1, b, b, '1')
    else
      local units = charge.height - limit.height
      cell_insert(block.cells[i], size + 1, '0', units)
      cell_set(sums, b, cell_get(sums, b) + units)
    end
    limit.stack, limit.height = charge.stack, charge.height
    out[#out + 1] = struct.pack('<ddB', charge.cost, charge.stack, charge.waited and 1 or 0)
  end
  block.names = block.names .. name
  receipts_resize(r, b, size + 1)
  r.number, r.open = r.number + 1, r.open + 1
  call('HSET', r.key, name, table.concat(out))
  receipts_write(r)
  local expiry = math.floor((math.max(counts_until(receipt), receipt.made + HOUR) - now) / 1000) + slack
  call('PEXPIRE', r.key, string.format('%d', math.max(expiry, call('PTTL', r.key))))
end
