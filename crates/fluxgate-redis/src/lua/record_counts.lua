-- Adds counts to the fields of a hash. `guard` is the field of the writer: a batch that was added
-- before, because its reply was lost, is not added again.
local key, guard, batch, ttl = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if (tonumber(redis.call('HGET', key, guard) or '0') or 0) >= tonumber(batch) then
  return 0
end
redis.call('HSET', key, guard, batch)
redis.call('PEXPIRE', key, ttl)
for i = 4, #ARGV, 2 do
  -- What is no number was written by another program.
  local count = (tonumber(redis.call('HGET', key, ARGV[i]) or '0') or 0) + tonumber(ARGV[i + 1])
  redis.call('HSET', key, ARGV[i], string.format('%.0f', count))
end
return 1
