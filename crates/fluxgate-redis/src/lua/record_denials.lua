-- Adds rows of denials to the hash of a rule and a minute. Returns how many rows it has, and how many
-- denials have none. A row is
-- `count first last text` in the field `=` and its id. At most `most` rows stay, those with the
-- highest counts; the counts of the others are added to the field `dropped`. `guard` is the field of
-- the writer: a batch that was added before is not added again.
local key, guard, batch, ttl = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local most, dropped = tonumber(ARGV[4]), tonumber(ARGV[5])

-- What is no number was written by another program.
local function number(field)
  return tonumber(redis.call('HGET', key, field) or '0') or 0
end

local rows, dropped_before = number('rows'), number('dropped')
if number(guard) >= tonumber(batch) then
  return { rows, dropped_before }
end
redis.call('HSET', key, guard, batch)
redis.call('PEXPIRE', key, ttl)

local function write(field, count, first, last, text)
  redis.call('HSET', key, field, string.format('%.0f %.0f %.0f ', count, first, last) .. text)
end

local new = {}
for i = 6, #ARGV, 5 do
  local field, text = ARGV[i], ARGV[i + 4]
  local count, first, last = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local known = redis.call('HGET', key, field)
  local c, f, l, older = string.match(known or '', '^(%d+) (%d+) (%d+) (.*)$')
  if known and not c then
    -- Another program has written it.
    write(field, count, first, last, text)
  elseif known then
    if tonumber(l) > last then
      text = older
    end
    write(field, count + c, math.min(first, f), math.max(last, l), text)
  elseif rows < most then
    rows = rows + 1
    write(field, count, first, last, text)
  else
    new[#new + 1] = { field, count, first, last, text }
  end
end

if #new > 0 then
  local known, all = {}, redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 1) == '=' then
      known[#known + 1] = { all[i], tonumber(string.match(all[i + 1], '^%d+') or 0) }
    end
  end
  table.sort(known, function(a, b) return a[2] < b[2] end)
  table.sort(new, function(a, b) return a[2] > b[2] end)
  local lowest = 1
  for _, row in ipairs(new) do
    local last = known[lowest]
    if last and last[2] < row[2] then
      redis.call('HDEL', key, last[1])
      dropped = dropped + last[2]
      lowest = lowest + 1
      write(unpack(row))
    else
      dropped = dropped + row[2]
    end
  end
end
if dropped > 0 then
  redis.call('HSET', key, 'dropped', string.format('%.0f', dropped_before + dropped))
end
redis.call('HSET', key, 'rows', rows)
return { rows, dropped_before + dropped }
