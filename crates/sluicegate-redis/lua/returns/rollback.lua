-- Rollback of charges in whole units: those of windows and logs; see rollback.rs.

local function stack_roll_back(charge, most, left)
  local returned = math.min(most, charge.height, left)
  if returned <= 0 then
    return nil
  end
  return { stack = charge.stack, top = charge.height, bottom = charge.height - returned, size = returned }
end

local function stack_shift_down(a, rollback, charge)
  if charge.stack ~= rollback.stack then
    return
  elseif charge.height >= rollback.top then
    charge.height = charge.height - rollback.size
  else
    charge.height = math.min(charge.height, rollback.bottom)
  end
end
