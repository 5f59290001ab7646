-- What a bucket gets back.

-- How far past the instant of a bucket the latest one lies that was ever given to a
-- reservation, in us: 24 bits of a number, and above them how often it was halved,
-- rounded up each time. As algorithm/bucket.rs has it, with the proof.
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

-- What is left of it when the bucket's instant moves on by a cost.
local function overhang_after(overhang, cost)
  local span = span_of(overhang) - cost
  return span > 0 and overhang_of(span) or 0
end

-- One span or instant less another, and not below 0.
local function minus(refill, whole, part, less, less_part)
  whole, part = whole - less, part - less_part
  if part < 0 then
    whole, part = whole - 1, part + refill
  end
  if whole < 0 then
    return 0, 0
  end
  return whole, part
end

-- So much less of an instant, as a state; none when the bucket is full by now. Nobody
-- cancels where nobody waits, and of a queue that shapes only the last.
local function moved_back(horizon, max_wait, refill, whole, part, back, back_part, overhang)
  whole, part = minus(refill, whole, part, back, back_part)
  if max_wait > 0 then
    overhang = overhang_of(span_of(overhang) + back + (back_part > 0 and 1 or 0))
  end
  if whole > now or whole == now and part > 0 then
    return bucket_state(horizon, refill, whole, part, overhang)
  end
end

-- v = min(C, v + n); no state when the bucket is full again.
local function bucket_refund(k, _, _, max_wait, refill, units_part, _, units)
  local whole, part, stored, horizon, overhang = bucket_settle(k, refill)
  if stored then
    return stored, moved_back(horizon, max_wait, refill, whole, part, units, units_part, overhang)
  end
end

-- Returns what a cancelled reservation may return; `mark` is the instant at which
-- the bucket was to be full after it. The proof is in algorithm/bucket.rs.
local function bucket_cancel(k, tag, _, max_wait, refill, cost_part, _, cost, _, mark, mark_part)
  local whole, part, stored, horizon, overhang = bucket_settle(k, refill)
  if not stored or whole < now or whole == now and part == 0 then
    return
  end
  local latest = whole + span_of(overhang)
  if tag == SHAPING_BUCKET and (latest ~= mark or part ~= mark_part) then
    return
  end
  local kept, kept_part = minus(refill, latest, part, mark, mark_part)
  local refilled, refilled_part = minus(refill, now + cost, cost_part, mark, mark_part)
  if refilled > kept or refilled == kept and refilled_part > kept_part then
    kept, kept_part = refilled, refilled_part
  end
  local back, back_part = minus(refill, cost, cost_part, kept, kept_part)
  if back + back_part > 0 then
    return stored, moved_back(horizon, max_wait, refill, whole, part, back, back_part, overhang)
  end
end

-- Others were charged between a charge and its undo, and might take that charge
-- for one that stays. So the undo leaves a note of when it was, for longer than
-- they stand. It looks like a bucket's state.
local NOTE_LIFE = 10000000

-- Whether something was taken back since an instant that others counted on.
local function noted_since(note, instant)
  local stored = cells[note]
  return now - instant >= NOTE_LIFE
    or foreign and foreign[note]
    or stored and tonumber(sub(stored, 1, 16)) >= instant
end

local function leave_note(note)
  if not (foreign and foreign[note]) then
    keep(note, bucket_state(0, 1, now, 0, 0), now + NOTE_LIFE)
  end
end

-- Takes a charge back that was made at `charged_at`, when the bucket would else
-- have been full at `mark`. As long as that is to come the whole charge comes
-- off, and it is as if it had never been. From then on a refund would give too
-- much: the bucket goes on refilling, where without the charge it would be full
-- and stand still. So what has passed since then stays charged; who was alone
-- finds the bucket full all the same.
-- Proof: the state is the largest t_i + (c_i + c_i+1 + ...) over all charges c at
-- times t. Without c_x the terms up to that of t_x are c_x less, or gone. The
-- terms of later ones stay as they are, and at most now + (c_x+1 + ...). The state
-- is at least mark + c_x + (c_x+1 + ...), so less c_x and plus now - mark it is at
-- least that.
-- For this `mark` must hold to the end, but it counts on charges from before,
-- which may have been taken back since. If the last charge of all is taken back,
-- nobody counts on it, and the state is what that charge left: any later one
-- would have moved it on. Else there is a note, and who finds it takes the time
-- of his own charge for the mark, for which the same holds in any order.
-- Where the clock went back, t_i <= now does not hold: then only the last charge
-- is put back.
-- Where requests wait, others may have been queued behind the charge. So unless it is
-- the last it is cancelled, and if it is the last, all is as it was before it.
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
  if max_wait > 0 or tag == SHAPING_BUCKET then
    if not is_last or stored_overhang ~= overhang_after(overhang, cost) then
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
  return stored, moved_back(stored_horizon, 0, refill, whole, part, cost, cost_part, stored_overhang)
end
