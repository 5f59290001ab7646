-- The formats of the argument, the reply and the cells.

-- A check, as codec/request.rs packs it: the operation; whether it is the last of its key in
-- its group, which is charged for all; the group that ends with it (0 none, 1 a shadow group, 2
-- the enforced group); the number of checks of the request that follow; key; algorithm; the
-- exponent of the horizon; the window in ms, or the max_wait of a bucket; R or C; the cost, as a
-- fraction or in units; the fraction of the furthest debt; cost and furthest debt in us.
local CHECK, CHECK_SIZE = '<BBBI4I4BBI5I4I4I4I7I7', 44
local TAKE, REFUND = 1, 3

local blob = ARGV[1]
-- The reply begins with the number of the call, so that the client detects a reply to another
-- call. The keys of cells come first, then those of logs, then others. The last number is 1 if
-- any request has slots or a hold.
local number, cell_count, state_count, has_holds, pos = unpack('<I4I4I3B', blob)
local out, n = { pack('<I4Bd', number, 2, now), '', '', '' }, 1

-- Adds an entry to the reply: a letter, in lower case if the check passes, and the stored
-- state. Every kind of state has another length.
local function add_entry(passes, stored)
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
  elseif size == SLOTS_SIZE then
    out[n + 1] = passes and 'h' or 'H'
  else
    out[n + 1] = passes and 'l' or 'L'
  end
  n = n + 2
  out[n] = stored
end

-- Reads a value as a cell; returns whether it is one.
local function read_cell(k, value)
  local size = #value
  if size == DIGITS_SIZE then
    local instant = tonumber(sub(value, 1, 16))
    -- A number may begin with a sign or a space, but an instant does not.
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

-- Sets the state of a cell, to be written at the end of the call.
local function set_cell(k, value, ends)
  cells[k], instants[k], dirty[k] = value, ends, ends
  if logs then
    logs[k] = nil
  end
end
