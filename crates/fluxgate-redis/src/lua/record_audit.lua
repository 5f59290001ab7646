-- Adds an entry to the audit trail, unless it is among the newest: a reply may have been lost.
local key, ttl, most, entry = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
for _, known in ipairs(redis.call('LRANGE', key, 0, 99)) do
  if known == entry then
    return 0
  end
end
redis.call('LPUSH', key, entry)
redis.call('LTRIM', key, 0, most - 1)
redis.call('PEXPIRE', key, ttl)
return 1
