-- The sender of a queue: who it is, until when, and the last event that it has sent.
local queue, operation, holder, span, keep = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known, position = redis.call('HGET', queue, 'holder'), redis.call('HGET', queue, 'position')
local till = tonumber(redis.call('HGET', queue, 'until') or 0)
-- One that ends later than any can was written before the clock went back.
local is_held = known and till > now and till <= now + span
if operation == 'release' then
  if known == holder then
    redis.call('HDEL', queue, 'holder', 'until')
  end
  return ''
end
if is_held and known ~= holder then
  return false
end
if operation == 'advance' and known ~= holder then
  return false
end
if operation == 'advance' then
  position = ARGV[5]
elseif not position then
  -- What happened before the sender started is not sent.
  position = string.format('%.0f-0', math.max(0, now - tonumber(ARGV[5])))
end
redis.call('HSET', queue, 'holder', holder, 'until', string.format('%.0f', now + span), 'position', position)
redis.call('PEXPIRE', queue, keep)
return position
