-- Sliding window: the previous count, weighted by how much of that window the sliding one still
-- covers, plus the current count.

-- Returns whether count*span <= room*width, for counts up to 2e9, room up to 1e9 and spans up to
-- 366 days. A span is split at 2^22: its high limb is below 2^22.9, its low one below 2^22. A
-- count above 1e9 is split at 1e9. So the products are below 1e9 * 2^22.9 < 2^53, as are the
-- differences of two, and multiplying a double by 2^22 changes only its exponent. On the left a
-- sum of three may be above 2^53, and so rounded; it is still greater than the right side, which
-- is below 2^53.
local function weighs_at_most(count, span, room, width)
  local more = count > 1000000000 and count - 1000000000 or 0
  count = count - more
  local span_low, width_low = span % 4194304, width % 4194304
  local span_high, width_high = (span - span_low) / 4194304, (width - width_low) / 4194304
  return (count * span_high - room * width_high + more * span_high) * 4194304
    <= room * width_low - count * span_low - more * span_low
end

local function sliding_window_assess(k, tag, _, window, capacity, cost)
  local start, previous, current, at, moved_back, stored = window_settle(k, window)
  local corrected, corrected_ends, charged, ends
  if moved_back then
    corrected, corrected_ends = window_state(tag, window, start, previous, current)
  end
  local width = window * 1000
  local room = capacity - cost - current
  local passes = room >= previous
    or room >= 0 and weighs_at_most(previous, start + width - at, room, width)
  if passes and cost > 0 then
    charged, ends = window_state(tag, window, start, previous, current + cost)
  end
  return passes, stored, charged, ends, corrected, corrected_ends
end
