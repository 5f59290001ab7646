-- One look at the clock for everything that travels in this call.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- Milliseconds until `ends`, so that nothing goes too early:
-- ceil(ends / 1000) - floor(now / 1000). As text, and below 2^31 by way of an
-- integer: to let the server make it of a double takes four times as long.
local function until_end(ends)
  ends = ends + 999
  local millis = (ends - ends % 1000 - now + now % 1000) / 1000
  return format(millis < 2147483648 and '%d' or '%.0f', millis)
end
