-- Appends events to the log and returns their ids. With a topic, it appends nothing if the last
-- value of the topic is the given one.
local log, topic = KEYS[1], KEYS[2]
local most, keep, value = ARGV[1], ARGV[2], ARGV[3]
if topic then
  if redis.call('GET', topic) == value then
    return {}
  end
  redis.call('SET', topic, value, 'PX', keep)
end
local ids = {}
for index = 4, #ARGV do
  ids[#ids + 1] = redis.call('XADD', log, 'MAXLEN', '~', most, '*', 'e', ARGV[index])
end
redis.call('PEXPIRE', log, keep)
return ids
