-- Writes the heartbeat of an instance, and removes instances that are gone. Returns the time in
-- ms and the remaining heartbeats.
local key, id, text, gone = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', key, id, string.format('%.0f ', now) .. text)
redis.call('PEXPIRE', key, 2 * gone)
local all = redis.call('HGETALL', key)
local alive = {}
for i = 1, #all, 2 do
  local at = tonumber(string.match(all[i + 1], '^%d+'))
  -- The clock may have been set back.
  if at and math.abs(now - at) < gone then
    alive[#alive + 1] = all[i]
    alive[#alive + 1] = all[i + 1]
  else
    redis.call('HDEL', key, all[i])
  end
end
return { now, alive }
