-- Fixed window: one count for each aligned window.
local function fixed_window_assess(k, tag, _, window, capacity, cost)
  -- The previous window does not count.
  local start, _, current, _, moved_back, stored = window_settle(k, window)
  local corrected, corrected_ends, charged, ends
  if moved_back then
    corrected, corrected_ends = window_state(tag, window, start, 0, current)
  end
  local passes = current + cost <= capacity
  if passes and cost > 0 then
    charged, ends = window_state(tag, window, start, 0, current + cost)
  end
  return passes, stored, charged, ends, corrected, corrected_ends
end
