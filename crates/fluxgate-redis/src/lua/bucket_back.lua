-- What a bucket gets back.

-- An instant as a state, unless the bucket is full by now.
local function unless_full(tag, code, window, refill, whole, part)
  if whole > now or whole == now and part > 0 then
    return bucket_state(tag, code, window, refill, whole, part)
  end
end

-- v = min(C, v + n); no state when the bucket is full again.
local function bucket_refund(k, tag, code, window, refill, units_part, far_part, units, far)
  local whole, part, _, stored = bucket_settle(k, tag, code, window, refill, far, far_part)
  whole, part = whole - units, part - units_part
  if part < 0 then
    whole, part = whole - 1, part + refill
  end
  return stored, unless_full(tag, code, window, refill, whole, part)
end

-- Takes a charge of the instant `mark` back. A refund would give too much: while
-- the charge stood the bucket went on refilling, where without it it might have
-- been full and have stood still. What has passed since is the most that this
-- can be, so that much stays charged.
-- Proof, for any number of charges that are taken back in any order: the state
-- is the largest t_i + (c_i + c_i+1 + ...) over all charges c at times t. Without
-- the charge c_x at t_x, terms of earlier charges are c_x less; a term of a later
-- one is at most the term of x, less c_x, plus t_i - t_x <= now - t_x.
local function bucket_undo(k, tag, code, window, refill, cost_part, far_part, cost, far, mark)
  if now > mark then
    cost = cost - (now - mark)
  end
  if cost >= 0 then
    return bucket_refund(k, tag, code, window, refill, cost_part, far_part, cost, far)
  end
end
