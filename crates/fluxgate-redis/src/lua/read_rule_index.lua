-- Returns the fields and values of the hash KEYS[1], or the number of its fields if that is above
-- ARGV[1]. A user without access to HLEN gets them in any case.
local count = redis.pcall('HLEN', KEYS[1])
if type(count) == 'number' and count > tonumber(ARGV[1]) then
  return count
end
return redis.call('HGETALL', KEYS[1])
