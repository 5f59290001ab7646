-- Takes the record of a reservation off its key, so that it is cancelled once. Returns it,
-- or nothing if there is none, and the time in us.
local record = redis.call('GET', KEYS[1])
if record then
  redis.call('UNLINK', KEYS[1])
end
local time = redis.call('TIME')
return { record, string.format('%d%06d', time[1], time[2]) }
