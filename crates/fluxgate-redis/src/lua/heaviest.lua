-- Writes the units of identities, and keeps the heaviest. Written again, a count stays the same.
local key, most, ttl = KEYS[1], tonumber(ARGV[1]), ARGV[2]
for i = 3, #ARGV, 2 do
  redis.call('ZADD', key, ARGV[i], ARGV[i + 1])
end
redis.call('ZREMRANGEBYRANK', key, 0, -most - 1)
redis.call('PEXPIRE', key, ttl)
return 1
