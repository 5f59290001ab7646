-- Settlement and renewal of holds. The first check has the key of the record; one check for each
-- charge of the hold follows.

-- Returns when the hold of a record ends: with the last of its slots. If it has none, or some in
-- other calls, the record has the end.
local function end_of_hold(value, from, to, id)
  local whole, ends = unpack(RECORD, value)
  local latest
  for check = from, to - 1, CHECK_SIZE do
    local _, _, _, _, k, tag, _, _, _, b, c, d = unpack(CHECK, blob, check)
    if tag == SLOTS and whole == 1 then
      local of = slots_function('end_of')(k, slots_function('member_of')(id, c, b, d))
      latest = of and (not latest or of > latest) and of or latest
    end
  end
  return latest or ends, whole
end

-- Adjusts one charge. Returns the units that were charged in addition.
local function adjust(adjusts, check, id, mark, mark_part)
  local _, owes, _, _, k, tag, horizon, window, a, b, c, d, e = unpack(CHECK, blob, check)
  if tag == SLOTS then
    slots_function('release')(k, slots_function('member_of')(id, c, b, d))
    return 0
  elseif b == 0 then
    return 0
  end
  local change = tag <= SHAPING_BUCKET and adjusts.bucket
    or tag < SLIDING_LOG and adjusts.window
    or tag == CALENDAR_WINDOW and adjusts.calendar
    or adjusts.sliding_log
  return change(k, owes == 1, tag, horizon, window, a, b, c, d, e, mark, mark_part)
end

-- Returns whether any charge other than slots changes.
local function changes_rates(from, to)
  for check = from, to - 1, CHECK_SIZE do
    local _, _, _, _, _, tag, _, _, _, units = unpack(CHECK, blob, check)
    if tag ~= SLOTS and units > 0 then
      return true
    end
  end
  return false
end

-- Settles a hold: adjusts its charges and deletes the record. Reports for each check the units
-- that were charged in addition, or that it was not charged. A hold that has expired is gone,
-- except for a request that is cancelled while it waits: for that, its record stays until the
-- end of the wait.
local function settle(from, to)
  local k, id = unpack('<I4', blob, from + KEY_AT), unpack('<c16', blob, from + ID_AT)
  local first = from + CHECK_SIZE
  local count = (to - first) / CHECK_SIZE
  local value = read_record(k, count)
  if not value then
    return value == false and 'E' or 'G'
  end
  local is_cancelled = byte(blob, from + 1) == 1
  local ends = end_of_hold(value, first, to, id)
  if ends <= now and not is_cancelled then
    return 'G'
  end
  if changes_rates(first, to) then
    -- Writes the same value, which fails if the server is out of memory: a settlement is made as
    -- a whole or not at all. Slots alone are released without this test.
    call('PSETEX', KEYS[k], until_after_now(ends), value)
  end
  local adjusts = adjustments()
  local report = { pack('<I2', count) }
  local marks = #value - count * RECORD_MARK_SIZE
  for i = 1, count do
    local mark, mark_part = unpack(RECORD_MARK, value, marks + (i - 1) * RECORD_MARK_SIZE + 1)
    local charged = 4294967295
    if mark ~= NOT_CHARGED then
      charged = adjust(adjusts, first + (i - 1) * CHECK_SIZE, id, mark, mark_part)
    end
    report[i + 1] = pack('<I4', charged)
  end
  call('UNLINK', KEYS[k])
  return 'S' .. table.concat(report)
end

-- Extends a hold to a span from now, unless it has ended. Only slots follow the first check.
local function renew(from, to)
  local k, id, span = unpack('<I4', blob, from + KEY_AT), unpack('<c16I6', blob, from + ID_AT)
  local _, _, _, _, _, _, _, life, longest_wait = unpack(CHECK, blob, from)
  local first = from + CHECK_SIZE
  local value = read_record(k, 0)
  if not value then
    return value == false and 'E' or 'G'
  end
  local ends, whole = end_of_hold(value, first, to, id)
  if ends <= now then
    return 'G'
  end
  local latest
  for check = first, to - 1, CHECK_SIZE do
    local _, _, _, _, of_slots, _, _, _, _, b, c, d = unpack(CHECK, blob, check)
    local of = slots_function('renew')(of_slots, slots_function('member_of')(id, c, b, d), span)
    latest = of and (not latest or of > latest) and of or latest
  end
  ends = latest or now + (whole == 1 and span or life)
  if whole == 0 and now + life > ends then
    ends = now + life
  end
  local record = pack(RECORD, whole, ends) .. string.sub(value, RECORD_SIZE + 1)
  -- The request may still wait, and so be cancelled.
  local needed = now + longest_wait * 1000000
  call('PSETEX', KEYS[k], until_after_now(needed > ends and needed or ends), record)
  return 'R'
end

-- Settles or renews a hold.
local function settle_or_renew(op, from, to)
  return (op == SETTLE and settle or renew)(from, to)
end

holds = {
  inspect_slots = inspect_slots,
  slots_function = slots_function,
  charge_slots = charge_slots,
  undo_slots = undo_slots,
  operation_of = operation_of,
  read = read_hold,
  mark_of = mark_of,
  add_marks = add_marks,
  write = write_record,
  settle_or_renew = settle_or_renew,
  always_size = ALWAYS_SIZE,
  is_refused = is_refused,
  is_always = is_always,
  units_of = units_of,
  charge_always = charge_always,
}
