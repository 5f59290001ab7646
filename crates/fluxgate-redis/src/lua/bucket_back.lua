-- What a bucket gets back.

-- So much less of an instant, as a state; none when the bucket is full by now.
local function less(tag, code, window, refill, whole, part, units, units_part)
  whole, part = whole - units, part - units_part
  if part < 0 then
    whole, part = whole - 1, part + refill
  end
  if whole > now or whole == now and part > 0 then
    return bucket_state(tag, code, window, refill, whole, part)
  end
end

-- v = min(C, v + n); no state when the bucket is full again.
local function bucket_refund(k, tag, code, window, refill, units_part, far_part, units, far)
  local whole, part, _, stored = bucket_settle(k, tag, code, window, refill, far, far_part)
  return stored, less(tag, code, window, refill, whole, part, units, units_part)
end

-- Others were charged between a charge and its undo, and might take that charge
-- for one that stays. So the undo leaves a note of when it was, for longer than
-- they stand. It looks like a bucket's state, of a window that there is not.
local NOTE_CODE, NOTE_LIFE = '000', 10000000

-- Whether something was taken back since an instant that others counted on.
local function noted_since(note, instant)
  local stored = cells[note]
  return now - instant >= NOTE_LIFE
    or foreign and foreign[note]
    or stored and tonumber(sub(stored, 1, 16)) >= instant
end

local function leave_note(note)
  if not (foreign and foreign[note]) then
    local low = now % 100000000
    keep(note, format('%08d%08d%s', (now - low) / 100000000, low, NOTE_CODE), now + NOTE_LIFE)
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
-- is put back. And nothing is pulled back here, for it may be another rule's.
local function bucket_undo(k, tag, code, window, refill, cost_part, _, cost, _, mark, mark_part, charged_at, note)
  local whole, part, _, stored = bucket_settle(k, tag, code, window, refill, math.huge, 0)
  if not stored then
    return
  end
  local left, left_part = mark + cost, mark_part + cost_part
  if left_part >= refill then
    left, left_part = left + 1, left_part - refill
  end
  local is_noted = noted_since(note, charged_at)
  local is_last = whole == left and part == left_part and not is_noted
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
  return stored, less(tag, code, window, refill, whole, part, cost, cost_part)
end
