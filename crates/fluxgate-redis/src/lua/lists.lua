-- The functions of the sliding log, defined when they are needed.
local log

-- Returns a function of the sliding log.
local function log_function(name)
  log = log or sliding_log()
  return log[name]
end

-- The functions of slots and holds, if a request of the call has any. What follows, up to
-- settle.lua, defines them: every local that a function refers to has its price, so other
-- calls refer to nothing but this one.
local holds
