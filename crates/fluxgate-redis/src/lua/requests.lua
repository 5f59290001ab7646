-- All requests but single decisions on buckets.

local function assess_of(tag)
  if tag <= SHAPING_BUCKET then
    return bucket_assess
  elseif tag == FIXED_WINDOW then
    return fixed_window_assess
  elseif tag == SLIDING_WINDOW then
    return sliding_window_assess
  elseif tag == CALENDAR_WINDOW then
    return calendar_assess
  elseif tag > CALENDAR_WINDOW then
    return holds.slots_function('assess')
  end
  return log_function('assess')
end

local function mark_foreign(k)
  foreign = foreign or {}
  foreign[k] = true
end

-- Inspects a key that has no cell, or should not have one.
local function inspect(k)
  local key = KEYS[k]
  local first = try('ZRANGE', key, 0, 0, 'WITHSCORES')
  if not first.err then
    if first[1] and not (holds and holds.inspect_slots(k, first)) then
      logs = logs or {}
      logs[k] = log_function('window_of')(k, first)
      if not logs[k] then
        mark_foreign(k)
      end
    end
    return
  end
  local value = try('GET', key)
  if type(value) == 'string' then
    if not read_cell(k, value) then
      mark_foreign(k)
    end
  elseif string.find(first.err, 'WRONGTYPE', 1, true) then
    mark_foreign(k)
  else
    -- Raises an error that is not about the type.
    call('ZRANGE', key, 0, 0)
  end
end

-- Writes the outcome of a check. Logs and slots have no `ends`: their own functions write them at
-- once, and slots are corrected when they are assessed.
local function write(k, takes, charged, ends, corrected, corrected_ends, hold)
  if not (takes and charged) then
    charged, ends = corrected, corrected_ends
  end
  if ends then
    set_cell(k, charged, ends)
  elseif charged and charged.slots then
    holds.charge_slots(charged, hold)
  elseif charged then
    log_function(takes and 'charge' or 'correct')(charged)
  end
end

-- Returns the furthest debt of a bucket after a request that does not wait. A shaping queue must
-- be empty before it.
local function furthest_at_once(tag, max_wait, cost_part, far_part, cost, far)
  if tag == SHAPING_BUCKET then
    return cost_part, cost
  end
  return far_part, far - max_wait * 1000
end

-- Returns how long a request that passes a bucket has to wait for it, in us.
local function delay_of(k, tag, max_wait, refill, cost_part, far_part, cost, far)
  local whole, part = bucket_settle(k, refill)
  if whole < now then
    whole, part = now, 0
  end
  whole, part = whole + cost, part + cost_part
  if part >= refill then
    whole, part = whole + 1, part - refill
  end
  far_part, far = furthest_at_once(tag, max_wait, cost_part, far_part, cost, far)
  local delay, delay_part = saturating_sub(refill, whole, part, now + far, far_part)
  return delay_part > 0 and delay + 1 or delay
end

-- Returns how long a request has to wait, in us; 0 if its enforced checks deny it.
local function wait_of(from, to)
  local wait = 0
  while from < to do
    local _, ends_group, k, tag, horizon, window, a, b, c, d, e
    _, _, ends_group, _, k, tag, horizon, window, a, b, c, d, e, from = unpack(CHECK, blob, from)
    if not assess_of(tag)(k, tag, horizon, window, a, b, c, d, e) then
      return 0
    end
    if tag <= SHAPING_BUCKET then
      local delay = delay_of(k, tag, window, a, b, c, d, e)
      wait = delay > wait and delay or wait
    end
    if ends_group == 2 then
      return wait
    end
  end
  return 0
end

-- Takes a permit to wait, if one is free.
local function take_permit(at, wait)
  local k, max, id = unpack(PERMIT, blob, at)
  local key, millis = KEYS[k], (now - now % 1000) / 1000
  call('ZREMRANGEBYSCORE', key, '-inf', format('%.0f', millis))
  if call('ZCARD', key) >= max then
    return false
  end
  -- It outlives the wait by a second, so that it does not expire while in use.
  call('ZADD', key, format('%.0f', millis + (wait + 999 - (wait + 999) % 1000) / 1000 + 1000), id)
  local last = call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
  call('PEXPIRE', key, until_end(last[2] * 1000))
  return true
end

-- Charges the checks of a denied group that are charged always, and adds the entries of all
-- checks: those that are charged have the state after the charge. A preview charges nothing; the
-- client computes what the charge would leave, except for a log.
local function add_denied_entries(denied, is_peek)
  local units = {}
  for i = 1, #denied do
    local of = denied[i]
    if of.last and holds.is_always(of.at) then
      units[of[1]] = holds.units_of(of.at)
      if not is_peek then
        holds.charge_always(of.at, of[1], of[2], of[3], of[4], of[5], of[8], of[9])
      end
    end
  end
  for i = 1, #denied do
    local of = denied[i]
    local stored = of.stored
    if holds.is_always(of.at) and not is_peek then
      local _
      _, stored = assess_of(of[2])(spread(of))
    elseif holds.is_always(of.at) and of[2] == SLIDING_LOG then
      stored = log_function('charged')(of[1], of[4], of[5], of[6], units[of[1]]) or stored
    end
    add_entry(of.passed, stored)
  end
end

-- Decides checks by group: all of a group or nothing is charged. If the enforced group denies,
-- the answer ends with it. `at_once` denies what would have to wait. `always_at` is the offset of
-- what always.lua needs, if any check is charged always.
local function decide(from, to, at_once, hold, always_at)
  local group, size, passes = {}, 0, true
  local marks = hold and {}
  local pending, is_enforced_done
  if always_at then
    pending, passes = {}, not holds.is_refused(always_at)
  end
  while from < to do
    local op, last, ends_group, _, k, tag, horizon, window, a, b, c, d, e
    op, last, ends_group, _, k, tag, horizon, window, a, b, c, d, e, from = unpack(CHECK, blob, from)
    if at_once and tag <= SHAPING_BUCKET then
      c, e = furthest_at_once(tag, window, b, c, d, e)
      window = 0
    end
    local passed, stored, charged, ends, corrected, corrected_ends =
      assess_of(tag)(k, tag, horizon, window, a, b, c, d, e)
    if pending then
      pending[#pending + 1] = {
        k, tag, horizon, window, a, b, c, d, e,
        at = always_at, passed = passed, stored = stored, last = last == 1,
      }
      always_at = always_at + holds.always_size
    else
      add_entry(passed, stored)
    end
    passes = passes and passed
    if marks then
      marks[#marks + 1] = holds.mark_of(tag, b, passed and charged)
      if passed and tag <= SHAPING_BUCKET and not is_enforced_done then
        local delay = delay_of(k, tag, window, a, b, c, d, e)
        hold.wait = delay > hold.wait and delay or hold.wait
      end
    end
    if last == 1 then
      size = size + 1
      group[size] = { k, charged, ends, corrected, corrected_ends }
    end
    if ends_group > 0 then
      local is_peek = op == PEEK or op == PEEK + WITH_ALWAYS
      for i = 1, size do
        local of = group[i]
        write(of[1], passes and not is_peek, of[2], of[3], of[4], of[5], hold)
      end
      if pending and not passes then
        add_denied_entries(pending, is_peek)
      elseif pending then
        for i = 1, #pending do
          add_entry(pending[i].passed, pending[i].stored)
        end
      end
      pending = pending and {}
      if marks then
        holds.add_marks(hold, marks, passes)
        marks = {}
      end
      if ends_group == 2 and not passes then
        return
      end
      is_enforced_done = true
      size, passes = 0, true
    end
  end
end

-- Refunds, undoes or cancels. Only a refund reports the state after it.
local function refund_or_undo(from, to, hold)
  while from < to do
    local op, _, _, _, k, tag, horizon, window, a, b, c, d, e
    op, _, _, _, k, tag, horizon, window, a, b, c, d, e, from = unpack(CHECK, blob, from)
    local back, mark, mark_part, charged_at, note, overhang
    if op == REFUND then
      back = tag <= SHAPING_BUCKET and bucket_refund
        or tag < SLIDING_LOG and window_refund
        or tag == CALENDAR_WINDOW and calendar_refund
        or tag == SLIDING_LOG and log_function('refund')
    else
      mark, mark_part, charged_at, note, overhang, from = unpack(MARK, blob, from)
      local bucket_back = op == CANCEL and bucket_cancel or bucket_undo
      back = tag <= SHAPING_BUCKET and bucket_back
        or tag < SLIDING_LOG and window_undo
        or tag == CALENDAR_WINDOW and calendar_undo
        or tag == SLIDING_LOG and log_function('undo')
    end
    local stored, left, ends
    if back then
      stored, left, ends =
        back(k, tag, horizon, window, a, b, c, d, e, mark, mark_part, charged_at, note, overhang)
    elseif hold then
      holds.undo_slots(hold, k, b, c, d)
    end
    if stored then
      set_cell(k, left, ends or 0)
    end
    if op == REFUND and (tag == SLIDING_LOG or tag > CALENDAR_WINDOW) then
      add_entry(assess_of(tag)(k, tag, horizon, window, a, 0, c, d))
    elseif op == REFUND then
      add_entry(true, left)
    end
  end
end

-- Returns whether any key of a request has a foreign value.
local function has_foreign_key(from, to, size)
  for check = from, to - 1, size do
    if foreign[unpack('<I4', blob, check + KEY_AT)] then
      return true
    end
  end
end

-- Returns whether the time is outside the calendar window of any check.
local function is_misdated(from, to, size)
  for check = from, to - 1, size do
    if byte(blob, check + TAG_AT) == CALENDAR_WINDOW then
      local _, _, width, _, _, _, start = unpack('<BBI5I4I4I4I7', blob, check + TAG_AT)
      if now < start or now >= start + width * 1000 then
        return true
      end
    end
  end
end

-- Runs one request; returns where the next one begins.
local function request(from, op, left)
  local has_hold, has_always = false, op >= WITH_ALWAYS
  if has_always then
    op = op - WITH_ALWAYS
  end
  if holds then
    op, has_hold = holds.operation_of(op)
  end
  local size = (op == UNDO or op == CANCEL) and CHECK_SIZE + MARK_SIZE or CHECK_SIZE
  local to = from + (left + 1) * size
  local next = op == TAKE_PERMIT and to + PERMIT_SIZE or to
  local hold
  if has_hold then
    hold, next = holds.read(next)
  end
  local always_at
  if has_always then
    always_at, next = next, next + (left + 1) * holds.always_size
  end
  if foreign and has_foreign_key(from, to, size) then
    n = n + 1
    out[n] = 'E'
  elseif is_misdated(from, to, size) then
    n = n + 1
    out[n] = 'T'
  elseif op == TAKE_PERMIT then
    local wait = wait_of(from, to)
    local has_permit = wait > 0 and take_permit(to, wait)
    decide(from, to, wait > 0 and not has_permit, hold, always_at)
    if wait > 0 then
      n = n + 1
      out[n] = has_permit and 'p' or 'P'
    end
  elseif op > TAKE_PERMIT then
    n = n + 1
    out[n] = holds.settle_or_renew(op, from, to)
  elseif op >= REFUND then
    refund_or_undo(from, to, hold)
    if hold and hold.k > 0 then
      call('UNLINK', KEYS[hold.k])
    end
  else
    decide(from, to, false, hold, always_at)
  end
  if hold then
    holds.write(hold)
  end
  return next
end

return { inspect = inspect, request = request, overhang_after = overhang_after }
