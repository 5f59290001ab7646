-- What comes in and goes out.

-- A check, as codec/request.rs packs it: what to do; whether it speaks for its
-- key in its group; what it ends (0 nothing, 1 a shadow group, 2 the enforced
-- one); how many checks of the request follow; key; algorithm; the exponent of the
-- horizon; the window in ms, or the max_wait of a bucket; R or C; the cost, as a
-- part or in units; the part of the furthest debt; cost and furthest debt in us.
local CHECK, CHECK_SIZE = '<BBBI4I4BBI5I4I4I4I7I7', 44
local TAKE, REFUND = 1, 3

local blob = ARGV[1]
-- The number of the call, which is told back: a reply that went astray shall not
-- be taken for that of another. The keys of cells come first, then those of logs,
-- then others.
local number, cell_count, state_count, pos = unpack('<I4I4I4', blob)
local out, n = { pack('<I4Bd', number, 2, now), '', '', '' }, 1

-- Adds an entry to the reply: a letter, small if the check passes, and what was
-- stored. No two kinds of state have one length.
local function tell(passes, stored)
  if not stored then
    n = n + 1
    out[n] = passes and 'n' or 'N'
    return
  end
  local size = #stored
  if size == DIGITS_SIZE then
    out[n + 1] = passes and 'i' or 'I'
  elseif size == BUCKET_SIZE then
    out[n + 1] = passes and 'b' or 'B'
  elseif size == COUNTS_SIZE then
    out[n + 1] = passes and 'c' or 'C'
  elseif size == LONG_BUCKET_SIZE then
    out[n + 1] = passes and 'o' or 'O'
  else
    out[n + 1] = passes and 'l' or 'L'
  end
  n = n + 2
  out[n] = stored
end

-- Takes what was read as a cell; says whether it is one of ours.
local function recognise(k, value)
  local size = #value
  if size == DIGITS_SIZE then
    local instant = tonumber(sub(value, 1, 16))
    -- Digits and nothing that a number may begin with besides.
    if instant and instant % 1 == 0 and byte(value) > 47 then
      cells[k], instants[k] = value, instant
      return true
    end
  elseif size == BUCKET_SIZE or size == LONG_BUCKET_SIZE then
    if byte(value) == BUCKET_TAG then
      cells[k] = value
      return true
    end
  elseif size == COUNTS_SIZE then
    local first = byte(value)
    if first > SHAPING_BUCKET and first < SLIDING_LOG then
      cells[k] = value
      return true
    end
  end
  return false
end

-- A cell as it stands from now on, to be written at the end of the call.
local function keep(k, value, ends)
  cells[k], instants[k], dirty[k] = value, ends, ends
  if logs then
    logs[k] = nil
  end
end
