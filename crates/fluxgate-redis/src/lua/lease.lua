-- Leases: grants units of a band, and applies the reports on earlier grants. The algorithm and
-- its proof are in algorithm/grant.rs.
do
  -- What follows the check: the key of the units that are out on lease, and the most of them; the
  -- units wanted; the span of a lease in ms; the numbers of reports and of rungs that follow.
  local LEASE = '<I4I4I4I4BB'
  -- A report: when the grant ends; the units spent; the units returned, also as time.
  local REPORT = '<I7I4I4I7I4'
  -- A rung: units, and the time that they take of a bucket. Each rung has half the units of the
  -- one before, so the rungs that fit add up to the most units that fit. The first one has more
  -- units than are wanted.
  local RUNG, RUNG_SIZE = '<I4I7I4', 15
  -- Units that are out: when they end, and how many.
  local END, END_SIZE, MAX_ENDS = '<I7I4', 11, 32
  local PARTS, MAX_LEASE = 8, 60000000

  -- Returns the units that are out, by when they end, and their sum.
  local function outstanding_at(key)
    local stored, ends, sum, late = call('GET', key), {}, 0, 0
    local furthest = now + MAX_LEASE + MAX_LEASE / PARTS
    for at = 1, stored and #stored - END_SIZE + 1 or 0, END_SIZE do
      local instant, units = unpack(END, stored, at)
      if instant > furthest then
        late = late + units
      elseif instant > now then
        ends[#ends + 1] = { instant, units }
      end
      sum = instant > now and sum + units or sum
    end
    if late > 0 then
      -- The clock went back.
      ends[#ends + 1] = { furthest, late }
    end
    return ends, sum
  end

  -- Removes reported units; returns whether that many were out.
  local function take_reported(ends, instant, units)
    for i = 1, #ends do
      if ends[i][1] == instant then
        if ends[i][2] < units then
          return false
        end
        ends[i][2] = ends[i][2] - units
        if ends[i][2] == 0 then
          table.remove(ends, i)
        end
        return true
      end
    end
    return false
  end

  local function add_end(ends, instant, units)
    for i = 1, #ends do
      if ends[i][1] == instant then
        ends[i][2] = ends[i][2] + units
        return
      end
    end
    ends[#ends + 1] = { instant, units }
  end

  local function write_ends(key, ends)
    if #ends == 0 then
      call('UNLINK', key)
      return
    end
    local packed, last = {}, 0
    for i = 1, #ends do
      packed[i] = pack(END, ends[i][1], ends[i][2])
      last = ends[i][1] > last and ends[i][1] or last
    end
    call('PSETEX', key, until_end(last), table.concat(packed))
  end

  -- Takes units of a bucket by the rungs at `at`: at most `room`, and half of what is left.
  local function take_of_bucket(k, horizon, refill, far_part, far, room, at, rungs)
    local whole, part, _, _, overhang = bucket_settle(k, refill)
    if whole < now then
      whole, part = now, 0
    end
    -- Returns the most units that fit, up to `most`, and the instant with them.
    local function fit(most)
      local granted, instant, instant_part, rung = 0, whole, part, at
      for _ = 1, rungs do
        if granted == most then
          break
        end
        local units, time, time_part
        units, time, time_part, rung = unpack(RUNG, blob, rung)
        local after, after_part = instant + time, instant_part + time_part
        if after_part >= refill then
          after, after_part = after + 1, after_part - refill
        end
        local ahead = after - now
        if granted + units <= most and (ahead < far or ahead == far and after_part <= far_part) then
          granted, instant, instant_part = granted + units, after, after_part
        end
      end
      return granted, instant, instant_part
    end
    local left = fit(2 * room)
    local granted, instant, instant_part = fit((left + left % 2) / 2)
    if granted > 0 then
      if overhang ~= 0 then
        overhang = overhang_after(overhang, instant - whole)
      end
      set_cell(k, bucket_state(horizon, refill, instant, instant_part, overhang))
    end
    return granted
  end

  -- Takes at most `room` units of a window. Returns them, and when the window ends.
  local function take_of_window(k, tag, window, capacity, begins, next_ends, room)
    local start, ends, current, _
    if tag == CALENDAR_WINDOW then
      start, ends, current = calendar_settle(k, window, begins, next_ends)
    else
      start, _, current = window_settle(k, window)
      ends = start + window * 1000
    end
    local left = capacity > current and capacity - current or 0
    local granted = (left + left % 2) / 2
    granted = granted < room and granted or room
    if granted > 0 then
      set_cell(k, pack(COUNTS, FIXED_WINDOW, start, 0, current + granted), ends)
    end
    return granted, ends
  end

  -- Answers a lease request; returns where the next one begins.
  function lease(from)
    local _, k, tag, horizon, window, a, c, d, e, at
    _, _, _, _, k, tag, horizon, window, a, _, c, d, e, at = unpack(CHECK, blob, from)
    local lease_key, most, want, span, reports, rungs
    lease_key, most, want, span, reports, rungs, at = unpack(LEASE, blob, at)
    local rungs_at = at + reports * 26
    local next = rungs_at + rungs * RUNG_SIZE
    n = n + 1
    if foreign and foreign[k] then
      out[n] = 'E'
      return next
    elseif tag == CALENDAR_WINDOW and (now < d or now >= d + window * 1000) then
      out[n] = 'T'
      return next
    end
    local key, is_changed = KEYS[lease_key], false
    local ends, sum = outstanding_at(key)
    for _ = 1, reports do
      local instant, spent, returned, time, time_part
      instant, spent, returned, time, time_part, at = unpack(REPORT, blob, at)
      if take_reported(ends, instant, spent + returned) then
        sum, is_changed = sum - spent - returned, true
        if returned > 0 and cells[k] then
          local _, left, left_ends
          if tag <= SHAPING_BUCKET then
            _, left, left_ends = bucket_refund(k, tag, horizon, window, a, time_part, 0, time)
          elseif tag == CALENDAR_WINDOW then
            _, left, left_ends = calendar_refund(k, tag, horizon, window, a, returned, 0, d, e)
          else
            _, left, left_ends = window_refund(k, tag, horizon, window, a, returned)
          end
          set_cell(k, left, left_ends or 0)
        end
      end
    end
    local room = most > sum and #ends < MAX_ENDS and most - sum or 0
    room = (room + room % 2) / 2
    room = room < want and room or want
    local granted, window_ends
    if tag <= SHAPING_BUCKET then
      granted = take_of_bucket(k, horizon, a, c, e, room, rungs_at, rungs)
    else
      granted, window_ends = take_of_window(k, tag, window, a, d, e, room)
    end
    local width, instant = span * 1000 / PARTS, now + span * 1000
    instant = instant - instant % width + width
    if window_ends and window_ends < instant then
      instant = window_ends
    end
    if granted > 0 then
      add_end(ends, instant, granted)
    end
    if granted > 0 or is_changed then
      write_ends(key, ends)
    end
    n = n - 1
    add_entry(true, cells[k])
    n = n + 1
    out[n] = pack('<c1I4I7I7I4', 'a', granted, instant, (window_ends or now) - now, sum + granted)
    return next
  end
end
