-- Adds lease requests to the slow path.
do
  local LEASE = 18
  local load_requests = load_slow_path
  function load_slow_path()
    local functions = load_requests()
    local request = functions.request
    function functions.request(from, op, left)
      if op == LEASE then
        return lease(from)
      end
      return request(from, op, left)
    end
    return functions
  end
end
