-- Sets the scores of members of an index, and keeps it for `ttl`. If there are more than `most`
-- members, those with the lowest scores are removed.
local key, ttl, most = KEYS[1], ARGV[1], tonumber(ARGV[2])
for i = 3, #ARGV, 2 do
  redis.call('ZADD', key, ARGV[i + 1], ARGV[i])
end
redis.call('PEXPIRE', key, ttl)
return redis.call('ZREMRANGEBYRANK', key, 0, -most - 1)
