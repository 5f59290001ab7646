-- The functions of the sliding log, defined when they are needed.
local log

-- Returns a function of the sliding log.
local function log_function(name)
  log = log or sliding_log()
  return log[name]
end

-- The functions of slots and holds, if a request of the call has any. The files up to settle.lua
-- define them. Every upvalue of a function costs time, so other calls have only this one.
local holds
