-- Requests that are more than one check of a bucket.

local log

-- An algorithm's function for a check.
local function of_log(name)
  log = log or sliding_log()
  return log[name]
end

local function assess_of(tag)
  if tag <= LEAKY_BUCKET then
    return bucket_assess
  elseif tag == FIXED_WINDOW then
    return fixed_window_assess
  elseif tag == SLIDING_WINDOW then
    return sliding_window_assess
  end
  return of_log('assess')
end

local function not_ours(k)
  foreign = foreign or {}
  foreign[k] = true
end

-- Finds out what stands at a key that is no string, or should be none.
local function look_closer(k)
  local key = KEYS[k]
  local first = try('ZRANGE', key, 0, 0, 'WITHSCORES')
  if not first.err then
    if first[1] then
      logs = logs or {}
      logs[k] = of_log('window_of')(first)
      if not logs[k] then
        not_ours(k)
      end
    end
    return
  end
  local value = try('GET', key)
  if type(value) == 'string' then
    if not recognise(k, value) then
      not_ours(k)
    end
  elseif string.find(first.err, 'WRONGTYPE', 1, true) then
    not_ours(k)
  else
    -- Not about the type: let it be told as it is.
    call('ZRANGE', key, 0, 0)
  end
end

-- Writes what came of a check. A log has no end here: it is written at once,
-- and by its own functions.
local function write(k, takes, charged, ends, corrected, corrected_ends)
  if not (takes and charged) then
    charged, ends = corrected, corrected_ends
  end
  if ends then
    keep(k, charged, ends)
  elseif charged then
    of_log(takes and 'charge' or 'correct')(charged)
  end
end

-- Checks in groups: each group by itself, all or nothing; when the enforced one
-- refuses, the answer ends with it.
local function decide(from, to)
  local group, size, passes = {}, 0, true
  while from < to do
    local op, last, ends_group, _, k, tag, code, window, a, b, c, d, e
    op, last, ends_group, _, k, tag, code, window, a, b, c, d, e, from = unpack(CHECK, blob, from)
    local passed, stored, charged, ends, corrected, corrected_ends =
      assess_of(tag)(k, tag, code, window, a, b, c, d, e)
    tell(passed, stored)
    passes = passes and passed
    if last == 1 then
      size = size + 1
      group[size] = { k, charged, ends, corrected, corrected_ends }
    end
    if ends_group > 0 then
      for i = 1, size do
        local of = group[i]
        write(of[1], passes and op == TAKE, of[2], of[3], of[4], of[5])
      end
      if ends_group == 2 and not passes then
        return
      end
      size, passes = 0, true
    end
  end
end

-- Gives units back. A refund tells what is there then, an undo nothing.
local function give_back(from, to)
  while from < to do
    local op, _, _, _, k, tag, code, window, a, b, c, d, e
    op, _, _, _, k, tag, code, window, a, b, c, d, e, from = unpack(CHECK, blob, from)
    local back, mark, mark_part, charged_at, note
    if op == UNDO then
      mark, mark_part, charged_at, note, from = unpack(MARK, blob, from)
      back = tag <= LEAKY_BUCKET and bucket_undo or tag < SLIDING_LOG and window_undo or of_log('undo')
    else
      back = tag <= LEAKY_BUCKET and bucket_refund or tag < SLIDING_LOG and window_refund or of_log('refund')
    end
    local stored, left, ends = back(k, tag, code, window, a, b, c, d, e, mark, mark_part, charged_at, note)
    if stored then
      keep(k, left, ends or 0)
    end
    if op == REFUND and tag == SLIDING_LOG then
      tell(of_log('assess')(k, tag, code, window, a, 0))
    elseif op == REFUND then
      tell(true, left)
    end
  end
end

-- Whether a request asks for a key that is not ours.
local function meets_foreign(from, to, size)
  for check = from, to - 1, size do
    if foreign[unpack('<I4', blob, check + KEY_AT)] then
      return true
    end
  end
end

-- One request; tells where the next one begins.
local function request(from, op, left)
  local size = op == UNDO and CHECK_SIZE + MARK_SIZE or CHECK_SIZE
  local to = from + (left + 1) * size
  if foreign and meets_foreign(from, to, size) then
    n = n + 1
    out[n] = 'E'
  elseif op >= REFUND then
    give_back(from, to)
  else
    decide(from, to)
  end
  return to
end

return { look_closer = look_closer, request = request }
