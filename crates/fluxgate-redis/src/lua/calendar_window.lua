-- Calendar window: a count for each window of a calendar. The check has the window that contains
-- the time, and the end of the next one.

-- Longer than any window, in us.
local ANY_WINDOW = 34560000000000

-- Returns the window to decide in (start and end), its count, whether it was moved back, and the
-- stored state.
local function calendar_settle(k, width, start, next_ends)
  local ends = start + width * 1000
  local stored = cells[k]
  if not stored then
    return start, ends, 0, false
  end
  local _, stored_start, _, count = unpack(COUNTS, stored)
  if stored_start > ends then
    -- The clock went back beyond the window before: use the count for the current one.
    return start, ends, count, true, stored
  elseif stored_start > now then
    return stored_start, stored_start < ends and ends or next_ends, count, false, stored
  elseif stored_start >= start then
    return stored_start, ends, count, false, stored
  end
  return start, ends, 0, false, stored
end

local function calendar_state(start, count)
  return pack(COUNTS, FIXED_WINDOW, start, 0, count)
end

local function calendar_assess(k, _, _, width, capacity, cost, _, begins, next_ends)
  local start, ends, count, moved_back, stored = calendar_settle(k, width, begins, next_ends)
  local corrected, charged
  if moved_back then
    corrected = calendar_state(start, count)
  end
  local passes = count + cost <= capacity
  if passes and cost > 0 then
    charged = calendar_state(start, count + cost)
  end
  return passes, stored, charged, charged and ends, corrected, corrected and ends
end

-- Takes units off the current count; no state if no count is left.
local function calendar_refund(k, _, _, width, _, units, _, begins, next_ends)
  local start, ends, count, _, stored = calendar_settle(k, width, begins, next_ends)
  if count > units then
    return stored, calendar_state(start, count - units), ends
  end
  return stored
end

-- Takes a charge off the window that began at `mark`, and off no other.
local function calendar_undo(k, _, _, width, _, units, _, begins, next_ends, mark)
  local stored = cells[k]
  if not stored then
    return nil
  end
  local ends = begins + width * 1000
  local _, start, _, count = unpack(COUNTS, stored)
  if start == mark then
    count = count > units and count - units or 0
  end
  if start < begins or count == 0 then
    return stored
  elseif start > ends then
    ends = start + ANY_WINDOW
  elseif start == ends then
    ends = next_ends
  end
  return stored, calendar_state(start, count), ends
end
