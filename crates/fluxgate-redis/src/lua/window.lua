-- The common parts of the two counting windows.

-- Returns counts as a state, and when that expires.
local function window_state(tag, window, start, previous, current)
  local ends = start + window * 1000
  if tag == SLIDING_WINDOW and current > 0 then
    ends = ends + window * 1000
  end
  return pack(COUNTS, tag, start, previous, current), ends
end

-- Returns the counts of the window to decide in (start, previous, current), the instant to
-- decide at, whether the window was moved back, and the stored state.
local function window_settle(k, window)
  local width = window * 1000
  local start = now - now % width
  local stored = cells[k]
  if not stored then
    return start, 0, 0, now, false
  end
  local _, stored_start, previous, current = unpack(COUNTS, stored)
  local ahead = stored_start - now
  if ahead > width then
    -- The clock went back by more than a window: use the counts for the current one.
    return start, previous, current, now, true, stored
  elseif ahead > 0 then
    return stored_start, previous, current, stored_start, false, stored
  elseif stored_start == start then
    return start, previous, current, now, false, stored
  elseif stored_start + width == start then
    return start, current, 0, now, false, stored
  end
  return start, 0, 0, now, false, stored
end

-- Takes units off the current count; no state if no count is left.
local function window_refund(k, tag, _, window, _, units)
  local start, previous, current, _, _, stored = window_settle(k, window)
  if tag == FIXED_WINDOW then
    previous = 0
  end
  current = current > units and current - units or 0
  if current > 0 or previous > 0 then
    return stored, window_state(tag, window, start, previous, current)
  end
  return stored
end

-- Takes a charge off the window that began at `mark`, and off no other. A refund would take
-- units off the current window.
local function window_undo(k, tag, _, window, _, units, _, _, _, mark)
  local _, _, _, _, _, stored = window_settle(k, window)
  if not stored then
    return nil
  end
  local _, start, previous, current = unpack(COUNTS, stored)
  if start == mark then
    current = current > units and current - units or 0
  elseif tag == SLIDING_WINDOW and start - window * 1000 == mark then
    previous = previous > units and previous - units or 0
  end
  local undone, ends = window_state(tag, window, start, previous, current)
  if ends > now and (current > 0 or previous > 0) then
    return stored, undone, ends
  end
  return stored
end
