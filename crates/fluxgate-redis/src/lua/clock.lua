-- Read once for all requests of the call.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- Returns the milliseconds until `ends`, rounded so that nothing expires too early:
-- ceil(ends / 1000) - floor(now / 1000). As text, and below 2^31 formatted as an
-- integer: the server takes four times as long to convert a double.
local function until_end(ends)
  ends = ends + 999
  local millis = (ends - ends % 1000 - now + now % 1000) / 1000
  return format(millis < 2147483648 and '%d' or '%.0f', millis)
end
