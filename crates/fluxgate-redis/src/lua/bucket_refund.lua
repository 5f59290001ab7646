-- Refund, cancellation and undo of a bucket.

-- The overhang is the span from the instant of a bucket to the latest instant of a reservation,
-- in us: a number of 24 bits and, above them, how often it was halved, rounded up each time. It
-- is 0 if no request had to wait since the bucket was last full, and AT_FULL if no reservation
-- lies past the instant. The proof is in algorithm/bucket.rs.
local function overhang_of(span)
  local halved = 0
  while span >= 16777216 do
    span, halved = (span + span % 2) / 2, halved + 1
  end
  return span + halved * 16777216
end

local function span_of(overhang)
  local span = overhang % 16777216
  return span * 2 ^ ((overhang - span) / 16777216)
end

-- Returns an overhang other than 0 after the instant of its bucket moves on by a cost.
local function overhang_after(overhang, cost)
  local span = span_of(overhang) - cost
  return span > 0 and overhang_of(span) or AT_FULL
end

-- Returns the overhang after the instant of its bucket moves back by a span. Without
-- reservations there is no instant to remember. In a shaping queue only the last reservation
-- returns its units, and then the one before it is the last.
local function overhang_before(overhang, tag, max_wait, back, back_part)
  if max_wait == 0 and (overhang == 0 or tag == SHAPING_BUCKET) then
    return overhang
  end
  local span = span_of(overhang) + back + (back_part > 0 and 1 or 0)
  return span > 0 and overhang_of(span) or overhang
end

-- Returns the difference of two spans or instants, at least 0.
local function saturating_sub(refill, whole, part, less, less_part)
  whole, part = whole - less, part - less_part
  if part < 0 then
    whole, part = whole - 1, part + refill
  end
  if whole < 0 then
    return 0, 0
  end
  return whole, part
end

-- Returns the state after an instant moves back; none if the bucket is full by now.
local function moved_back(horizon, tag, max_wait, refill, whole, part, back, back_part, overhang)
  whole, part = saturating_sub(refill, whole, part, back, back_part)
  overhang = overhang_before(overhang, tag, max_wait, back, back_part)
  if whole > now or whole == now and part > 0 then
    return bucket_state(horizon, refill, whole, part, overhang)
  end
end

-- v = min(C, v + n); no state if the bucket is full again.
local function bucket_refund(k, tag, _, max_wait, refill, units_part, _, units)
  local whole, part, stored, horizon, overhang = bucket_settle(k, refill)
  if stored then
    return stored,
      moved_back(horizon, tag, max_wait, refill, whole, part, units, units_part, overhang)
  end
end

-- Cancels a reservation, and returns as many of its units as may return; `mark` is the instant at
-- which the bucket would be full after it. The proof is in algorithm/bucket.rs.
local function bucket_cancel(k, tag, _, max_wait, refill, cost_part, _, cost, _, mark, mark_part)
  local whole, part, stored, horizon, overhang = bucket_settle(k, refill)
  if not stored or whole < now or whole == now and part == 0 then
    return
  end
  local latest = whole + span_of(overhang)
  if tag == SHAPING_BUCKET and (latest ~= mark or part ~= mark_part) then
    return
  end
  local kept, kept_part = saturating_sub(refill, latest, part, mark, mark_part)
  local refilled, refilled_part = saturating_sub(refill, now + cost, cost_part, mark, mark_part)
  if refilled > kept or refilled == kept and refilled_part > kept_part then
    kept, kept_part = refilled, refilled_part
  end
  local back, back_part = saturating_sub(refill, cost, cost_part, kept, kept_part)
  if back + back_part > 0 then
    return stored,
      moved_back(horizon, tag, max_wait, refill, whole, part, back, back_part, overhang)
  end
end

-- Requests may be charged between a charge and its undo, and their marks include that charge. So
-- the undo leaves a note of its time, which outlives them. A note has the format of a bucket's
-- state.
local NOTE_LIFE = 10000000

-- Returns whether a charge was undone since an instant.
local function noted_since(note, instant)
  local stored = cells[note]
  return now - instant >= NOTE_LIFE
    or foreign and foreign[note]
    or stored and tonumber(sub(stored, 1, 16)) >= instant
end

local function leave_note(note)
  if not (foreign and foreign[note]) then
    set_cell(note, bucket_state(0, 1, now, 0, 0), now + NOTE_LIFE)
  end
end

-- Undoes a charge that was made at `charged_at`; without it, the bucket would have been full at
-- `mark`. Before `mark`, the whole charge is removed, as if it had never been made. After it, a
-- refund would return too much: the bucket has refilled, where without the charge it would have
-- been full. So the time since `mark` stays charged. Without other charges the bucket is full
-- anyway.
-- Proof: the state is the largest t_i + (c_i + c_i+1 + ...) over all charges c at times t.
-- Without c_x the terms up to that of t_x are c_x less, or gone. The later terms do not change,
-- and are at most now + (c_x+1 + ...). The state is at least mark + c_x + (c_x+1 + ...), so less
-- c_x and plus now - mark it is at least that.
-- This needs a `mark` that is still right, but it includes earlier charges, which may have been
-- undone since. If the last charge of all is undone, no other mark includes it, and the state is
-- what that charge left: a later one would have moved it on. Otherwise there is a note, and an
-- undo that finds it takes the time of its own charge as the mark, for which the same proof
-- holds in any order.
-- If the clock went back, t_i <= now does not hold: then only the last charge is undone.
-- If requests may wait, by this rule or by another one on the same bucket, others may be queued
-- behind the charge. So if the charge is the last one, its whole effect is undone; else it is
-- cancelled.
local function bucket_undo(
  k, tag, horizon, max_wait, refill, cost_part, _, cost, _, mark, mark_part, charged_at, note, overhang
)
  local whole, part, stored, stored_horizon, stored_overhang = bucket_settle(k, refill)
  if not stored then
    return
  end
  local left, left_part = mark + cost, mark_part + cost_part
  if left_part >= refill then
    left, left_part = left + 1, left_part - refill
  end
  local is_last = whole == left and part == left_part
  if max_wait > 0 or tag == SHAPING_BUCKET or stored_overhang ~= 0 then
    -- A charge that had to wait has set AT_FULL itself.
    local left_overhang = overhang ~= 0 and overhang_after(overhang, cost)
      or stored_overhang == AT_FULL and AT_FULL
      or 0
    if not is_last or stored_overhang ~= left_overhang then
      return bucket_cancel(k, tag, horizon, max_wait, refill, cost_part, 0, cost, 0, left, left_part)
    elseif mark > now or mark == now and mark_part > 0 then
      return stored, bucket_state(stored_horizon, refill, mark, mark_part, overhang)
    end
    return stored
  end
  local is_noted = noted_since(note, charged_at)
  is_last = is_last and not is_noted
  if now < charged_at and not is_last then
    return
  end
  if is_noted then
    mark, mark_part = charged_at, 0
  end
  if now > mark then
    cost, cost_part = cost - (now - mark), cost_part + mark_part
    if cost_part >= refill then
      cost, cost_part = cost + 1, cost_part - refill
    end
    if cost < 0 then
      return
    end
  end
  if not is_last then
    leave_note(note)
  end
  return stored,
    moved_back(stored_horizon, tag, 0, refill, whole, part, cost, cost_part, stored_overhang)
end
