-- Rules with `charge: always`, whose units are charged even if the request is denied.

-- What follows the checks of a request with such rules, for each check: 1 if it is charged
-- always, plus 2 if the request is denied whatever the checks say; its units, capacity and
-- period.
local ALWAYS, ALWAYS_SIZE = '<BI4I4I7', 16
local always_adjusts

-- Returns whether a request is denied whatever its checks say.
local function is_refused(at)
  return byte(blob, at) >= 2
end

-- Returns whether a check is charged always.
local function is_always(at)
  return byte(blob, at) % 2 == 1
end

-- Returns the units of a check.
local function units_of(at)
  local _, units = unpack(ALWAYS, blob, at)
  return units
end

-- Charges the units of a check, as far as the band may owe them.
local function charge_always(at, k, tag, horizon, window, refill, begins, next_ends)
  local _, units, capacity, period = unpack(ALWAYS, blob, at)
  if units == 0 then
    return
  end
  always_adjusts = always_adjusts or adjustments()
  if tag <= SHAPING_BUCKET then
    always_adjusts.bucket(k, true, tag, horizon, 0, refill, units, capacity, period)
  elseif tag < SLIDING_LOG then
    always_adjusts.window(k, true, tag, horizon, window, capacity, units)
  elseif tag == CALENDAR_WINDOW then
    always_adjusts.calendar(k, true, tag, horizon, window, capacity, units, 0, begins, next_ends)
  else
    always_adjusts.sliding_log(k, true, tag, horizon, window, capacity, units)
  end
end
