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
-- A reservation is one charge, and each extension another: each has a cell of its own, in the order
-- of creation. A receipt is closed from its newest charge on, a few charges per call (close.lua).
--
-- Cells are kept in blocks, and the header has the sum of each block, so that a call reads the
-- header and one or two blocks, however many charges there are.
--
-- Fields    '#5', the header: next number, cells, blocks, limits, length of the text; until when
--           the receipts are kept that have no time to live or return their charge, and the latest
--           end of those with a time to live; the text of the limits; per limit the stack of the
--           last run (-1: closed) and its height, and the reference: its height, and its moment in
--           microseconds and parts; per block the first number and how many cells it has; then
--           sums, one per block: the sum of its last run, and whether that starts in it
--           'b' and a first number, a block: the names of its cells; then cells
--           a name, a receipt: when it was made; when it ends (0: it has no time to live), and how
--           long after a restart; what it charged in all; while it is closed, what of that is still
--           to be returned (-1: it is open); the number of its charges; whether it returns its
--           charge when it ends, and whether anything was returned; then its first charge
--           a name and a number, one of the charges after the first
-- Charge    number, cost, and per limit stack, waited
-- Cells     per limit the columns starts ('1' or '0') and units. A block that a return has emptied
--           is not rewritten: if its sum is 0, so are its cells. The cell of a first charge has
--           the name of its receipt; that of another its number and zeros.
-- Deadlines are a sorted set: the end of each receipt with a time to live (0 while it is closed),
--           and a member that sorts newer receipts first: 2^53 - number, and the name.

local RECEIPTS_MAX, BLOCK_MAX = 16384, 128
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
local function receipts_read(key, deadlines, text, limits)
  local raw = call('HGET', key, '#5')
  local r = {
    key = key, deadlines = deadlines, text = text, number = 1, open = 0, n = 0, kept = 0, ends = 0,
    limits = {}, firsts = '', sizes = '', blocks = {},
  }
  if raw then
    local number, open, n, count, length, kept, ends = struct.unpack('<dI4I4I4I4dd', raw)
    local written_in = string.sub(raw, 41, 40 + length)
    if not text or written_in == text then
      r.text, r.number, r.open, r.n, r.kept, r.ends = written_in, number, open, n, kept, ends
      local offset = 41 + length
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
    call('UNLINK', key, deadlines)
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

-- Writes all that has changed, and the field of a receipt. Both keys expire once no receipt is
-- needed.
local function receipts_write(r, name, value)
  if r.open == 0 then
    call('UNLINK', r.key, r.deadlines)
    return
  end
  if r.has_ended then
    local last = call('ZRANGE', r.deadlines, '-1', '-1', 'WITHSCORES')
    r.ends = tonumber(last[2]) or 0
  end
  local number = struct.pack('<dI4I4I4I4dd', r.number, r.open, r.n, #r.limits, #r.text, r.kept, r.ends)
  local out = { number, r.text }
  for i = 1, #r.limits do
    local limit = r.limits[i]
    out[#out + 1] = struct.pack('<ddddI4', limit.stack, limit.height, limit.reference, limit.at, limit.part)
  end
  out[#out + 1] = r.firsts
  out[#out + 1] = r.sizes
  cells_write(r.sums, out)
  local fields = { '#5', table.concat(out), name, value }
  for first, block in pairs(r.blocks) do
    out = { block.names }
    cells_write(block.cells, out)
    fields[#fields + 1] = 'b' .. first
    fields[#fields + 1] = table.concat(out)
  end
  call('HSET', r.key, unpack(fields))
  if value or r.has_ended or r.is_moved then
    local expiry = string.format('%d', math.max(0, r.kept - now, r.ends - now) / 1000 + slack)
    call('PEXPIRE', r.key, expiry)
    if r.ends > 0 then
      call('PEXPIRE', r.deadlines, expiry)
    end
  end
end

-- Finds a receipt: the columns of its field.
local function receipts_find(r, name)
  local raw = r.open > 0 and call('HGET', r.key, name)
  if not raw then
    return nil
  end
  local made, ends, length, total, left, charges, cancels, returned = struct.unpack('<ddddddBB', raw)
  return {
    name = name, made = made, ends = ends, length = length, total = total, left = left, charges = charges,
    cancels = cancels == 1, returned = returned == 1, first = string.sub(raw, 51),
  }
end

-- Returns the field of a receipt.
local function receipts_pack(receipt)
  local head = struct.pack(
    '<ddddddBB', receipt.made, receipt.ends, receipt.length, receipt.total, receipt.left, receipt.charges,
    receipt.cancels and 1 or 0, receipt.returned and 1 or 0
  )
  return head .. receipt.first
end

-- Returns true if a receipt can be settled, cancelled and extended.
local function receipts_is_open(receipt)
  return receipt.left < 0 and (receipt.ends == 0 or now < receipt.ends)
end

-- Adds the deadline of a receipt, or moves it; without `ends` it is removed.
local function receipts_set_deadline(r, receipt, ends)
  local number = struct.unpack('<d', receipt.first)
  local member = struct.pack('>d', 9007199254740992 - number) .. receipt.name
  if ends then
    call('ZADD', r.deadlines, string.format('%d', ends), member)
  else
    call('ZREM', r.deadlines, member)
  end
end

-- Returns the field of a charge after the first.
local function receipts_field(receipt, index)
  return receipt.name .. struct.pack('<I4', index)
end

-- Finds a charge of a receipt: its number, its cost, its part under each limit, its block and its
-- index there.
local function receipts_charge(r, receipt, index)
  local raw, name = receipt.first, receipt.name
  if index > 1 then
    raw = call('HGET', r.key, receipts_field(receipt, index))
    if not raw then
      return nil
    end
    name = string.sub(raw, 1, 8) .. string.rep('\0', 8)
  end
  local number, cost = struct.unpack('<dd', raw)
  local charge = { number = number, cost = cost }
  for i = 1, #r.limits do
    local stack, waited = struct.unpack('<dB', raw, 9 * i + 8)
    charge[i] = { stack = stack, waited = waited == 1 }
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
  charge.block, charge.at = low, at and (at - 1) / NAME + 1
  return at and charge
end

-- Sets the height of a charge under a limit.
local function receipts_measure(r, charge, i)
  local part, starts = charge[i]
  part.height, starts = cells_run(receipts_block(r, charge.block).cells[i], charge.at)
  if not starts and charge.block > 1 then
    part.height = part.height + cells_run(r.sums[i], charge.block - 1)
  end
end

-- Takes from the end of a block, and from the blocks before it.
local function receipts_take(r, i, b, units)
  local at, rest = cells_take(r.sums[i], b, units)
  if at > 0 then
    cells_take(receipts_block(r, at).cells[i], receipts_size(r, at), rest)
  end
end

-- Removes a piece of the stack below a charge.
local function receipts_roll_back(r, charge, i, units)
  local b, limit, sums = charge.block, r.limits[i], r.sums[i]
  local cells = receipts_block(r, b).cells[i]
  local is_last = not string.find(cells.starts, '1', charge.at + 1, true)
  local at, rest = cells_take(cells, charge.at, units)
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

-- Removes the cells of a charge. What it charged stays.
local function receipts_remove_cells(r, charge)
  local b, at = charge.block, charge.at
  local size = receipts_size(r, b)
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

-- Removes the newest charge of a receipt, and the receipt with the last one.
local function receipts_pop(r, receipt, charge)
  if charge then
    receipts_remove_cells(r, charge)
  end
  if receipt.charges > 1 then
    call('HDEL', r.key, receipts_field(receipt, receipt.charges))
  else
    call('HDEL', r.key, receipt.name)
    -- One that was closed in steps has a deadline too.
    if receipt.ends > 0 then
      receipts_set_deadline(r, receipt, nil)
      r.has_ended = true
    end
  end
  receipt.charges = receipt.charges - 1
end

-- Adds a charge to a receipt, which may be a new one, and writes both. The receipt is kept until
-- the charge no longer counts, and for at least an hour, or for its time to live.
local function receipts_add(r, receipt, charge, counts_until)
  local b, size = r.n, r.n > 0 and receipts_size(r, r.n) or BLOCK_MAX
  local number, is_first = struct.pack('<d', r.number), receipt.charges == 0
  local is_new = size == BLOCK_MAX
  if is_new then
    b, size = b + 1, 0
    r.n, r.firsts, r.sizes = b, r.firsts .. number, r.sizes .. '\0\0'
    r.blocks[number] = { names = '', cells = {} }
  end
  local block, out = receipts_block(r, b), { number, struct.pack('<d', charge.cost) }
  for i = 1, #r.limits do
    local part, limit, sums, cells = charge[i], r.limits[i], r.sums[i], block.cells[i]
    -- Heights of a stack never fall while its state is kept.
    local is_start = part.stack ~= limit.stack or limit.height > part.height
    local start = is_start and '1' or '0'
    local units = is_start and part.height or part.height - limit.height
    local packed = struct.pack('<d', units)
    if is_new then
      block.cells[i] = { starts = start, units = packed }
      sums.starts, sums.units = sums.starts .. start, sums.units .. packed
    else
      cells.starts, cells.units = cells.starts .. start, cells.units .. packed
      cell_set(sums, b, is_start and units or cell_get(sums, b) + units)
      if is_start then
        sums.starts = column_put(sums.starts, 1, b, b, '1')
      end
    end
    limit.stack, limit.height = part.stack, part.height
    out[#out + 1] = struct.pack('<dB', part.stack, part.waited and 1 or 0)
  end
  block.names = block.names .. (is_first and receipt.name or number .. string.rep('\0', 8))
  receipts_resize(r, b, size + 1)
  r.number, r.open = r.number + 1, r.open + 1
  receipt.charges, receipt.total = receipt.charges + 1, receipt.total + charge.cost
  if is_first then
    receipt.first = table.concat(out)
  else
    call('HSET', r.key, receipts_field(receipt, receipt.charges), table.concat(out))
  end
  -- Without a time to live a receipt is kept for at least an hour. One that returns its charge must
  -- outlive its own end, as whichever call comes next is to notice it.
  if receipt.ends == 0 then
    r.kept = math.max(r.kept, receipt.made + HOUR, counts_until(charge, r))
  elseif receipt.cancels then
    r.kept = math.max(r.kept, counts_until(charge, r))
  end
end
