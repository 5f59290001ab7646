-- Writes or deletes one stored rule set, if the precondition holds.
local index, set, history = KEYS[1], KEYS[2], KEYS[3]
local name, expected, etag, text, version, channel, change, kept = unpack(ARGV)
local DAY = 86400000
local before = redis.call('HGET', index, name) or ''
if (expected == 'absent' and before ~= '')
  or (expected == 'present' and before == '')
  or (string.sub(expected, 1, 1) == '=' and expected ~= '=' .. before)
then
  return {0, before}
end
if etag == '' then
  -- Nothing was stored, so nothing changes.
  if redis.call('DEL', set) + redis.call('HDEL', index, name) == 0 then
    return {1, ''}
  end
else
  redis.call('SET', set, text)
  redis.call('HSET', index, name, etag)
end
redis.call('HSET', index, '', version)
-- The change, with the server's time and the new text. Rules can be written even without the
-- permission to write the history.
local time = redis.pcall('TIME')
if not time.err then
  local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
  redis.pcall('LPUSH', history, now .. ' ' .. change .. '\n' .. text)
  redis.pcall('LTRIM', history, 0, kept - 1)
  -- The history of a deleted set expires, or there would be one for every name ever used.
  redis.pcall('PEXPIRE', history, (etag == '' and 90 or 36500) * DAY)
end
-- Without the permission to publish, other instances find the change by polling.
redis.pcall('PUBLISH', channel, version)
return {1, before}
