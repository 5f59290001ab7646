-- Lets the slow path answer asks for units, too.
do
  local ASK = 18
  local load_requests = load_slow_path
  function load_slow_path()
    local functions = load_requests()
    local request = functions.request
    function functions.request(from, op, left)
      if op == ASK then
        return ask(from)
      end
      return request(from, op, left)
    end
    return functions
  end
end
