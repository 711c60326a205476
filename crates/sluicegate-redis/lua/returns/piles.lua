-- Charges in whole units on a pile: those of windows and of the log. As in rollback.rs.

local function pile_cut(charge, most, left)
  local give = math.min(most, charge.height, left)
  if give <= 0 then
    return nil
  end
  return { pile = charge.pile, top = charge.height, bottom = charge.height - give, size = give }
end

local function pile_close_gap(a, cut, charge)
  if charge.pile ~= cut.pile then
    return
  elseif charge.height >= cut.top then
    charge.height = charge.height - cut.size
  else
    charge.height = math.min(charge.height, cut.bottom)
  end
end
