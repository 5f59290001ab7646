-- Takes a permit to wait: returns 1, or 0 if none is free.
local max, millis, id = string.match(ARGV[1], '^(%d+) (%d+) (.*)$')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
if redis.call('ZCARD', KEYS[1]) >= tonumber(max) then
  return 0
end
local ends = now + tonumber(millis)
redis.call('ZADD', KEYS[1], string.format('%.0f', ends), id)
-- The set expires with its last permit.
local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
redis.call('PEXPIREAT', KEYS[1], last[2])
return 1
