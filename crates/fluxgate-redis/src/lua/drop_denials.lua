-- Deletes the rows of a rule and a minute, and adds their counts to the field `dropped`. Returns what
-- the script that adds rows returns.
local key, all, dropped, rows = KEYS[1], redis.call('HGETALL', KEYS[1]), 0, {}
for i = 1, #all, 2 do
  if all[i] == 'dropped' then
    dropped = dropped + (tonumber(all[i + 1]) or 0)
  elseif string.sub(all[i], 1, 1) == '=' then
    dropped = dropped + (tonumber(string.match(all[i + 1], '^%d+')) or 0)
    rows[#rows + 1] = all[i]
  end
end
for _, row in ipairs(rows) do
  redis.call('HDEL', key, row)
end
if #rows > 0 then
  redis.call('HSET', key, 'dropped', string.format('%.0f', dropped), 'rows', 0)
end
return { 0, dropped }
