-- Marks: a state of a key whose receipts expire says when to look for them, so that a check needs
-- no second key. No receipt of the key expires before its mark.
--
-- Mark      at the end of a state that is a string: packed moment .. '!' (other states end with a
--           space). That of a log is described in sliding_log.lua.

local MARK = 9

-- Returns a state without its mark, and the mark.
local function state_split(raw)
  if string.byte(raw, -1) == 33 then
    return string.sub(raw, 1, -MARK - 1), (struct.unpack('<d', raw, #raw - MARK + 1))
  end
  return raw
end

-- Returns a state with a mark, if there is one.
local function state_marked(raw, due)
  return due and raw .. struct.pack('<d', due) .. '!' or raw
end
