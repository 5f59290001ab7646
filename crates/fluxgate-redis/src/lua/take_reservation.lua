-- Removes and returns the record of a reservation, so that it is cancelled once; nil if there is
-- none. Also returns the time in us.
local record = redis.call('GET', KEYS[1])
if record then
  redis.call('UNLINK', KEYS[1])
end
local time = redis.call('TIME')
return { record, string.format('%d%06d', time[1], time[2]) }
