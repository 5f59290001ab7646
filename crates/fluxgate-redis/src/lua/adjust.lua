-- Adjusts a charge to its real cost when a hold is settled; algorithm/adjust.rs has the rules.
-- Each function returns units to the band, or charges as many as it may owe. The result is the
-- units charged.
local function adjustments()
  -- Sets a state. It is kept for a moment even if the quota is full again.
  local function set_adjusted(k, value, ends)
    set_cell(k, value, ends)
    dirty[k] = ends > now and ends or now + 1
  end

  -- Returns n*P/R, in whole us and R-ths, for n up to 2e9 and n*P/R up to 2^50. With P = q*R + r
  -- it is n*q + n*r/R, and n*r < 2^61 is divided in two steps, each below 2^48.
  local function time_of(units, period, refill)
    local rest = period % refill
    local low = units % 65536
    local product = (units - low) / 65536 * rest
    local part = product % refill
    local whole = (product - part) / refill * 65536
    product = part * 65536 + low * rest
    part = product % refill
    return units * ((period - rest) / refill) + whole + (product - part) / refill, part
  end

  local function is_less(whole, part, other, other_part)
    return whole < other or whole == other and part < other_part
  end

  -- Returns the units that refill in a span, rounded down. The estimate is off by less than one
  -- before it is rounded; exact comparisons correct it.
  local function whole_units_in(whole, part, period, refill)
    local units = math.floor((whole + part / refill) / period * refill)
    local time, time_part = time_of(units, period, refill)
    while is_less(whole, part, time, time_part) do
      units = units - 1
      time, time_part = time_of(units, period, refill)
    end
    time, time_part = time_of(units + 1, period, refill)
    while not is_less(whole, part, time, time_part) do
      units = units + 1
      time, time_part = time_of(units + 1, period, refill)
    end
    return units
  end

  -- `owes`: whether the units are charged; `mark`: the instant to which the hold's charge moved
  -- the bucket. The proof is in algorithm/bucket.rs.
  local function bucket(
    k, owes, tag, horizon, max_wait, refill, units, capacity, period, _, mark, mark_part
  )
    local whole, part, stored, stored_horizon, overhang = bucket_settle(k, refill)
    if whole < now then
      whole, part = now, 0
    end
    local owed, owed_part = whole - now, part
    local time, time_part = time_of(units, period, refill)
    if owes then
      local most, most_part = time_of(2 * capacity, period, refill)
      most, most_part = saturating_sub(refill, most, most_part, owed, owed_part)
      if is_less(most, most_part, time, time_part) then
        units = whole_units_in(most, most_part, period, refill)
        time, time_part = time_of(units, period, refill)
      end
      whole, part = whole + time, part + time_part
      if part >= refill then
        whole, part = whole + 1, part - refill
      end
      overhang = overhang ~= 0 and overhang_after(overhang, time) or 0
      if units == 0 then
        -- Nothing fits: the instant is that of another rule, and keeps its horizon.
        horizon = stored_horizon
      end
      set_adjusted(k, bucket_state(horizon, refill, whole, part, overhang))
      return units
    elseif not stored then
      return 0
    end
    local latest = whole + span_of(overhang)
    if tag == SHAPING_BUCKET then
      if latest ~= mark or part ~= mark_part then
        time, time_part = 0, 0
      end
    elseif max_wait > 0 or overhang ~= 0 then
      -- Another rule on the same bucket may let requests wait, even if the hold's rule does not.
      local fill, fill_part = time_of(capacity, period, refill)
      if is_less(now + fill, fill_part, latest, part) then
        -- A reservation waits.
        local kept, kept_part = saturating_sub(refill, latest, part, mark, mark_part)
        time, time_part = saturating_sub(refill, time, time_part, kept, kept_part)
      end
    end
    if is_less(owed, owed_part, time, time_part) then
      time, time_part = owed, owed_part
    end
    whole, part = saturating_sub(refill, whole, part, time, time_part)
    overhang = overhang_before(overhang, tag, max_wait, time, time_part)
    set_adjusted(k, bucket_state(stored_horizon, refill, whole, part, overhang))
    return 0
  end

  local function less(count, units)
    return count > units and count - units or 0
  end

  -- Returns how many of these units a count may still owe.
  local function room_for(units, count, capacity)
    local room = less(2 * capacity, count)
    return units < room and units or room
  end

  -- Returning units keeps the window of the state: if it became the current one and the clock went
  -- back, the counts would be gone.
  local function window(k, owes, tag, _, width, capacity, units, _, _, _, mark)
    local start, previous, current, _, moved_back, stored = window_settle(k, width)
    if owes then
      units = room_for(units, current, capacity)
      previous = tag == SLIDING_WINDOW and previous or 0
      set_adjusted(k, window_state(tag, width, start, previous, current + units))
      return units
    elseif not stored then
      return 0
    end
    local still_counts = start == mark or tag == SLIDING_WINDOW and start - width * 1000 == mark
    if not moved_back then
      local _
      _, start, previous, current = unpack(COUNTS, stored)
    end
    if still_counts and start == mark then
      current = less(current, units)
    elseif still_counts and start - width * 1000 == mark then
      previous = less(previous, units)
    end
    set_adjusted(k, window_state(tag, width, start, previous, current))
    return 0
  end

  local function calendar(k, owes, _, _, width, capacity, units, _, begins, next_ends, mark)
    local start, ends, count, moved_back, stored = calendar_settle(k, width, begins, next_ends)
    if owes then
      units = room_for(units, count, capacity)
      set_adjusted(k, calendar_state(start, count + units), ends)
      return units
    elseif not stored then
      return 0
    end
    local _, stored_start = unpack(COUNTS, stored)
    if start == mark and (moved_back or stored_start == mark) then
      set_adjusted(k, calendar_state(start, less(count, units)), ends)
    elseif moved_back then
      set_adjusted(k, calendar_state(start, count), ends)
    end
    return 0
  end

  local function sliding_log(k, owes, _, _, width, capacity, units, _, _, _, mark)
    return log_function('adjust')(k, owes, width, capacity, units, mark)
  end

  return { bucket = bucket, window = window, calendar = calendar, sliding_log = sliding_log }
end
