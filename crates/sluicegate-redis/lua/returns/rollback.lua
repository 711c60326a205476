-- Rollback of charges in whole units: those of windows and logs; see rollback.rs.

local function stack_roll_back(charge, most, left)
  local returned = math.min(most, charge.height, left)
  return returned > 0 and returned or nil
end
