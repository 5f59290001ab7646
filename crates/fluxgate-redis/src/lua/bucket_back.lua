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

-- Takes a charge back that left the bucket at the instant `mark`. A refund
-- would give too much: while the charge stood, the bucket went on refilling
-- where it would else have been full. So what others took since is put on top
-- of what was there before the charge, or of now.
local function bucket_undo(k, tag, code, window, refill, cost_part, far_part, cost, far, mark, mark_part)
  local whole, part, _, stored = bucket_settle(k, tag, code, window, refill, far, far_part)
  local before, before_part = mark - cost, mark_part - cost_part
  if before_part < 0 then
    before, before_part = before - 1, before_part + refill
  end
  if before < now then
    before, before_part = now, 0
  end
  local undone, undone_part = before + (whole - mark), before_part + part - mark_part
  if undone_part < 0 then
    undone, undone_part = undone - 1, undone_part + refill
  elseif undone_part >= refill then
    undone, undone_part = undone + 1, undone_part - refill
  end
  if undone < whole or undone == whole and undone_part < part then
    whole, part = undone, undone_part
  end
  return stored, unless_full(tag, code, window, refill, whole, part)
end
