-- The clock of the tests: the time comes with the call. What is written lives
-- for three years, for the server's own clock does not go with this one.
local now = tonumber(ARGV[2])

local function until_end()
  return '100000000000'
end
