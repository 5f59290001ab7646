-- Token bucket and leaky bucket: the state is the instant at which the bucket is full, in whole
-- us and R-ths of one. The check has the cost as time (n*P/R) and the furthest debt (C*P/R plus
-- max_wait), so nothing is multiplied.

-- The overhang (bucket_refund.lua) of a bucket that a request has to wait for, or had to, if no
-- reservation lies past its instant.
local AT_FULL = 16777216

-- Returns the instant as a state, and when that expires. The digits are formatted as two
-- integers of eight digits, which is three times as fast in the server's Lua as one double.
local function bucket_state(horizon, refill, whole, part, overhang)
  if overhang ~= 0 then
    return pack(LONG_BUCKET, BUCKET_TAG, horizon, whole, part, refill, overhang), whole + 1
  elseif part == 0 then
    local low = whole % 100000000
    return format('%08d%08d%02d', (whole - low) / 100000000, low, horizon), whole
  end
  return pack(BUCKET, BUCKET_TAG, horizon, whole, part, refill), whole + 1
end

-- Returns an instant in R-ths of the current R. A fraction p/d in lowest terms is exact if d
-- divides R, and p * (R/d) < R; else it is rounded up.
local function in_parts_of(refill, whole, part, stored_refill)
  local divisor, rest = part, stored_refill
  while rest > 0 do
    divisor, rest = rest, divisor % rest
  end
  local denominator = stored_refill / divisor
  if refill % denominator == 0 then
    return whole, part / divisor * (refill / denominator)
  end
  return whole + 1, 0
end

-- Returns the instant at which the bucket is full, the stored state with its horizon and its
-- overhang, and whether the instant was pulled back because it was beyond the horizon: then the
-- clock went back.
local function bucket_settle(k, refill)
  local stored = cells[k]
  if not stored then
    return now, 0, false, 0, 0, false
  end
  local whole, part, horizon, overhang, stored_refill
  if #stored == DIGITS_SIZE then
    -- Without two digits there, the value is foreign and has no horizon.
    whole, part, horizon, overhang = instants[k], 0, tonumber(sub(stored, 17)) or 0, 0
  else
    local size, _ = #stored
    if size == BUCKET_SIZE then
      _, horizon, whole, part, stored_refill = unpack(BUCKET, stored)
      overhang = 0
    else
      _, horizon, whole, part, stored_refill, overhang = unpack(LONG_BUCKET, stored)
      local idle = now - whole - (part > 0 and 1 or 0)
      if idle > 0 then
        -- The bucket has been full since; the latest instant of a reservation has not moved.
        if overhang ~= AT_FULL then
          slow = slow or load_slow_path()
          overhang = slow.overhang_after(overhang, idle)
        end
        overhang = overhang ~= AT_FULL and overhang or 0
      end
    end
  end
  local ahead = whole - now
  if ahead > 0 then
    local furthest = 2 ^ horizon
    if ahead > furthest or ahead == furthest and part > 0 then
      return now + furthest, 0, stored, horizon, overhang, true
    end
  end
  if part > 0 and stored_refill ~= refill then
    whole, part = in_parts_of(refill, whole, part, stored_refill)
  end
  return whole, part, stored, horizon, overhang, false
end

-- Returns whether a request that passes has to wait, that is, reserves its units.
local function bucket_waits(tag, max_wait, is_queued, ahead, part, far, far_part)
  if tag == SHAPING_BUCKET then
    return is_queued
  end
  local at_once = far - max_wait * 1000
  return max_wait > 0 and (ahead > at_once or ahead == at_once and part > far_part)
end

local function bucket_assess(k, tag, horizon, max_wait, refill, cost_part, far_part, cost, far)
  local whole, part, stored, stored_horizon, overhang, pulled_back = bucket_settle(k, refill)
  local corrected, corrected_ends, charged, ends
  if pulled_back then
    corrected, corrected_ends = bucket_state(stored_horizon, refill, whole, part, overhang)
  end
  if whole < now then
    whole, part = now, 0
  end
  local is_queued = whole > now or part > 0
  whole, part = whole + cost, part + cost_part
  if part >= refill then
    whole, part = whole + 1, part - refill
  end
  -- A wait of at most max_wait is a reservation; `far` includes max_wait.
  local ahead = whole - now
  local passes = ahead < far or ahead == far and part <= far_part
  if passes and cost + cost_part > 0 then
    if overhang == 0 then
      local waits = bucket_waits(tag, max_wait, is_queued, ahead, part, far, far_part)
      overhang = waits and AT_FULL or 0
    elseif overhang ~= AT_FULL then
      slow = slow or load_slow_path()
      overhang = slow.overhang_after(overhang, cost)
    end
    charged, ends = bucket_state(horizon, refill, whole, part, overhang)
  end
  return passes, stored, charged, ends, corrected, corrected_ends
end
