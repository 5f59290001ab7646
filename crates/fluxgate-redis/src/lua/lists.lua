-- The functions of states that are sorted sets, defined when they are needed.
local log, slot

-- Returns a function of the sliding log.
local function log_function(name)
  log = log or sliding_log()
  return log[name]
end

-- Returns a function of slots.
local function slots_function(name)
  slot = slot or concurrency()
  return slot[name]
end
