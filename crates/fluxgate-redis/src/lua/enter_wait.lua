-- Takes a place among the waiters, if there is one: 1, or 0.
local most, millis, id = string.match(ARGV[1], '^(%d+) (%d+) (.*)$')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
if redis.call('ZCARD', KEYS[1]) >= tonumber(most) then
  return 0
end
local ends = now + tonumber(millis)
redis.call('ZADD', KEYS[1], string.format('%.0f', ends), id)
-- The set lasts as long as its last place.
local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
redis.call('PEXPIREAT', KEYS[1], last[2])
return 1
