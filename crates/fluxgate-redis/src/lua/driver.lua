-- Reads the keys, runs the requests, and writes each changed cell once.
local KEYS = KEYS

-- One command reads at most 1000 keys.
for first = 1, cell_count, 1000 do
  local last = cell_count < first + 1000 and cell_count or first + 999
  local values, absent
  if last == 1 then
    values = { redis.pcall('GET', KEYS[1]) }
  else
    values = call('MGET', spread(KEYS, first, last))
  end
  for k = first, last do
    local value = values[k - first + 1]
    if not value then
      absent = absent or {}
      absent[#absent + 1] = KEYS[k]
    elseif not read_cell(k, value) then
      -- Errors other than a wrong type are returned.
      if value.err and not string.find(value.err, 'WRONGTYPE', 1, true) then
        return value
      end
      slow = slow or load_slow_path()
      slow.inspect(k)
    end
  end
  -- MGET reports values that are not strings as absent.
  if absent and last > 1 and call('EXISTS', spread(absent)) > 0 then
    slow = slow or load_slow_path()
    for k = first, last do
      if not cells[k] then
        slow.inspect(k)
      end
    end
  end
end
for k = cell_count + 1, state_count do
  slow = slow or load_slow_path()
  slow.inspect(k)
end

local size = #blob
while pos <= size do
  local from = pos
  local op, _, _, left, k, tag, horizon, window, a, b, c, d, e
  op, _, _, left, k, tag, horizon, window, a, b, c, d, e, pos = unpack(CHECK, blob, pos)
  if tag <= SHAPING_BUCKET and left == 0 and op < REFUND and not foreign then
    local passes, stored, charged, ends, corrected, corrected_ends =
      bucket_assess(k, tag, horizon, window, a, b, c, d, e)
    add_entry(passes, stored)
    if charged and op == TAKE then
      set_cell(k, charged, ends)
    elseif corrected then
      set_cell(k, corrected, corrected_ends)
    end
  else
    slow = slow or load_slow_path()
    pos = slow.request(from, op, left)
  end
  n = n + 1
  out[n] = ';'
end

for k = 1, state_count do
  local ends = dirty[k]
  if ends == 0 then
    call('UNLINK', KEYS[k])
  elseif ends then
    call('PSETEX', KEYS[k], until_end(ends), cells[k])
  end
end
return table.concat(out, '', 1, n)
