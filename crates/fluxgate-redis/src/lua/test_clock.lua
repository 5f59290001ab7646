-- The clock of the tests: the time comes with the call. Nothing expires, for
-- the server's own clock does not go with this one.
local now = tonumber(ARGV[2])

local function until_end() end
