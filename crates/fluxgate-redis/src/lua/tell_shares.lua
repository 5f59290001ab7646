-- Decides which reports of a reached share are told, and appends the events of those that are.
-- KEYS[1] is the log, if it may be written in this call; then there is a hash for each report.
-- Its field is a band and a share, with when the use was last seen at the share, until when it
-- stays there if nothing else comes, and the token of the report that was told.
--
-- A report replies 1 if it is told, 2 if it has been told before (its reply was lost), else 0.
local log, first = nil, 1
if ARGV[1] == '1' then
  log, first = KEYS[1], 2
end
local most, keep = ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local replies, arg = {}, 4

local function write(key, field, seen, till, token)
  redis.call('HSET', key, field, string.format('%.0f %.0f %s', seen, till, token))
  local left = redis.call('PTTL', key)
  if left < till - now then
    redis.call('PEXPIRE', key, string.format('%.0f', till - now))
  end
end

for index = first, #KEYS do
  local key, field, kind, token = KEYS[index], ARGV[arg], ARGV[arg + 1], ARGV[arg + 4]
  -- Decisions by units on lease have the time of an instance, whose clock may be ahead.
  local at = math.min(tonumber(ARGV[arg + 2]), now * 1000 + 999)
  local till = now + tonumber(ARGV[arg + 3])
  local seen, known_till, known_token =
    string.match(redis.call('HGET', key, field) or '', '^(%d+) (%d+) (.*)$')
  seen, known_till = tonumber(seen), tonumber(known_till)
  -- The use has fallen since, or the clock has gone back.
  if seen and (known_till <= now or seen > (now + 1000) * 1000) then
    seen = nil
  end
  -- For how long the use must not have been seen at the share, if the report reached it.
  local gap = tonumber(kind)
  local reply = 0
  if kind == 'below' then
    -- A report from after the fall stays.
    if not seen or seen < at then
      redis.call('HDEL', key, field)
    end
  elseif not seen or (gap and at - seen > gap) then
    write(key, field, at, till, token)
    reply = 1
  else
    if known_token == token then
      reply = 2
    end
    write(key, field, math.max(seen, at), math.max(known_till, till), known_token)
  end
  if log and reply == 1 then
    redis.call('XADD', log, 'MAXLEN', '~', most, '*', 'e', ARGV[arg + 5])
    redis.call('PEXPIRE', log, keep)
  end
  replies[#replies + 1] = reply
  arg = arg + 6
end
return replies
