-- Token bucket and leaky bucket: the instant at which the bucket is full, in
-- whole us and R-ths of one. The cost as time (n*P/R) and the furthest debt
-- (C*P/R and max_wait) come with the check, so nothing is multiplied.

-- The instant as a state, and when that ends. The digits are written as two
-- integers of eight: for the server's Lua that is thrice as fast as a double.
local function bucket_state(tag, code, window, refill, whole, part)
  if part == 0 and code ~= '---' then
    local low = whole % 100000000
    return format('%08d%08d%s', (whole - low) / 100000000, low, code), whole
  end
  return pack(STATE, tag, window, whole, part, refill), part > 0 and whole + 1 or whole
end

-- The same instant in R-ths of today's R; a fraction that does not fit goes
-- up. In lowest terms p/d it fits if d divides R, and p * (R/d) < R.
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

-- The instant at which the bucket is full, whether it had to be pulled back,
-- and the state it is from, if that is of this algorithm and window.
local function bucket_settle(k, tag, code, window, refill, far, far_part)
  local stored = cells[k]
  if not stored then
    return now, 0, false
  end
  local whole, part
  if #stored == DIGITS_SIZE then
    if sub(stored, 17) ~= code then
      return now, 0, false
    end
    whole, part = instants[k], 0
  else
    local stored_tag, stored_window, stored_refill
    stored_tag, stored_window, whole, part, stored_refill = unpack(STATE, stored)
    if stored_tag ~= tag or stored_window ~= window then
      return now, 0, false
    end
    if stored_refill ~= refill and part > 0 then
      whole, part = in_parts_of(refill, whole, part, stored_refill)
    end
  end
  -- Further ahead than the fullest debt: the clock went back, or the limit
  -- was made smaller.
  local ahead = whole - now
  if ahead > far or ahead == far and part > far_part then
    return now + far, far_part, true, stored
  end
  return whole, part, false, stored
end

local function bucket_assess(k, tag, code, window, refill, cost_part, far_part, cost, far)
  local whole, part, pulled_back, stored = bucket_settle(k, tag, code, window, refill, far, far_part)
  local corrected, corrected_ends, charged, ends
  if pulled_back then
    corrected, corrected_ends = bucket_state(tag, code, window, refill, whole, part)
  end
  if whole < now then
    whole, part = now, 0
  end
  whole, part = whole + cost, part + cost_part
  if part >= refill then
    whole, part = whole + 1, part - refill
  end
  -- A wait of at most max_wait is a reservation; `far` contains it.
  local ahead = whole - now
  local passes = ahead < far or ahead == far and part <= far_part
  if passes and cost + cost_part > 0 then
    charged, ends = bucket_state(tag, code, window, refill, whole, part)
  end
  return passes, stored, charged, ends, corrected, corrected_ends
end
