-- Holds: each has a record with what a settlement needs. The call that charges the hold writes
-- it, and it expires with the hold.

-- A record: whether all slots of the hold are in this call; when the hold ends, unless its slots
-- determine that; the bytes of the client; and for each check the window, the event or the
-- instant of a bucket (and its fraction) that its charge went to, or `NOT_CHARGED`.
local RECORD, RECORD_SIZE = '<BI7', 8
local RECORD_MARK, RECORD_MARK_SIZE = '<I7I4', 11
local NOT_CHARGED = 9007199254740992
-- What follows the checks of a request with a hold: the key of the record, the id, the requested
-- life of the hold, its life without slots, whether all its slots are in this call, and the
-- length and the bytes that the client writes into the record. Without a key there is no record.
local HOLD, HOLD_SIZE = '<I4c16I7I7BI4', 39
-- Added to the operation of a request with a hold.
local WITH_HOLD = 8
local SETTLE, RENEW = 16, 17
-- The offset of the id and, for a renewal, of the span in the first check of a settlement or a
-- renewal.
local ID_AT = 22

-- Returns the plain operation of a request, and whether it has a hold.
local function operation_of(op)
  if op >= WITH_HOLD and op < SETTLE then
    return op - WITH_HOLD, true
  end
  return op, false
end

-- Reads the hold of a request; returns it and where the next request begins.
local function read_hold(at)
  local k, id, span, life, whole, size = unpack(HOLD, blob, at)
  local hold = {
    k = k,
    id = id,
    span = span,
    life = life,
    whole = whole,
    written = string.sub(blob, at + HOLD_SIZE, at + HOLD_SIZE + size - 1),
    marks = {},
    -- How long the request waits.
    wait = 0,
  }
  return hold, at + HOLD_SIZE + size
end

local function packed_mark(whole, part)
  return pack(RECORD_MARK, whole, part or 0)
end

-- Returns the mark of a check: where it would charge its units, or that it would not.
local function mark_of(tag, cost, charged)
  if not charged or tag > SHAPING_BUCKET and cost == 0 then
    return packed_mark(NOT_CHARGED)
  elseif tag <= SHAPING_BUCKET then
    if #charged == DIGITS_SIZE then
      return packed_mark(tonumber(string.sub(charged, 1, 16)))
    end
    local _, _, whole, part = unpack(BUCKET, charged)
    return packed_mark(whole, part)
  elseif tag == SLOTS then
    return packed_mark(0)
  elseif tag == SLIDING_LOG then
    return packed_mark(log_function('mark_of')(charged))
  end
  local _, start = unpack(COUNTS, charged)
  return packed_mark(start)
end

-- Adds the marks of a group, if it was charged.
local function add_marks(hold, marks, is_charged)
  local none = packed_mark(NOT_CHARGED)
  for i = 1, #marks do
    local mark = is_charged and marks[i] or none
    hold.is_charged = hold.is_charged or mark ~= none
    hold.marks[#hold.marks + 1] = mark
  end
end

-- Writes the record of a hold, if anything was charged.
local function write_record(hold)
  if not hold.is_charged or hold.k == 0 then
    return
  end
  local ends = hold.ends
  if hold.whole == 0 or not ends then
    local life = now + hold.life
    ends = ends and ends > life and ends or life
  end
  local record = pack(RECORD, hold.whole, ends) .. hold.written .. table.concat(hold.marks)
  -- A request can be cancelled while it waits, even if the hold has ended.
  local needed = now + hold.wait > ends and now + hold.wait or ends
  call('PSETEX', KEYS[hold.k], until_after_now(needed), record)
end

-- Returns the record at a key; nil if there is none, and false if it is foreign.
local function read_record(k, count)
  local value = try('GET', KEYS[k])
  if not value then
    return nil
  elseif type(value) == 'string' and #value >= RECORD_SIZE + count * RECORD_MARK_SIZE then
    return value
  elseif type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
    call('GET', KEYS[k])
  end
  return false
end
