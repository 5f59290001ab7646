-- Writes or deletes one stored rule set, if the precondition holds.
local index, set = KEYS[1], KEYS[2]
local name, expected, etag, text, version, channel = unpack(ARGV)
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
-- Without the permission to publish, other instances see the change by polling.
redis.pcall('PUBLISH', channel, version)
return {1, before}
