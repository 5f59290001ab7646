-- Sliding log: a sorted set. Its first member, at minus infinity, has the format, the window
-- and, once the log was moved back, how far in total. The identity of an event, its instant plus
-- that, does not change. Every other member is an event at its instant, `<total>:<units>`; the
-- total counts the units of all events up to it. So the units between two events are a
-- subtraction, and binary search finds the event that must leave: no decision reads the whole
-- log.
local function sliding_log()
  local match = string.match
  -- Totals start again before they become too large. They grow by at most C = 1e5 in a window of
  -- 1 ms, so that happens at most once a year.
  local MAX_TOTAL = 4503599627370496
  -- The most events that one command writes.
  local CHUNK = 1000

  -- How far each log was moved back, by the number of its key.
  local moved = {}

  -- Returns the window of a log, by its first member; nothing if that is foreign.
  local function window_of(k, first)
    local window, back = match(first[1], '^log1:(%d+):?(%d*)$')
    moved[k] = tonumber(back or '') or 0
    return first[2] == '-inf' and tonumber(window or '') or nil
  end

  local function header_of(window, back)
    return format(back > 0 and 'log1:%.0f:%.0f' or 'log1:%.0f', window, back)
  end

  local function parse(member)
    local total, units = match(member, '^(%d+):(%d+)$')
    return tonumber(total), tonumber(units)
  end

  -- Returns total, units, instant and member of the event of a rank, if there is one.
  local function event(key, rank)
    local found = call('ZRANGE', key, rank, rank, 'WITHSCORES')
    if found[1] and found[2] ~= '-inf' then
      local total, units = parse(found[1])
      return total, units, tonumber(found[2]), found[1]
    end
  end

  -- Returns the lowest rank from `low` to `high` whose event has at least this total.
  local function rank_of(key, total, low, high)
    while low < high do
      local middle = (low + high - (low + high) % 2) / 2
      if event(key, middle) < total then
        low = middle + 1
      else
        high = middle
      end
    end
    return low
  end

  local function expire_at(key, ends)
    call('PEXPIRE', key, until_end(ends))
  end

  local function add(key, at, total, units)
    call('ZADD', key, at, format('%.0f:%.0f', total, units))
  end

  -- Rewrites the events from a rank on, with earlier instants and lower totals.
  local function rewrite_events(key, rank, earlier, lower)
    local events = call('ZRANGE', key, rank, -1, 'WITHSCORES')
    call('ZREMRANGEBYRANK', key, rank, -1)
    for first = 1, #events, 2 * CHUNK do
      local args = {}
      for i = first, math.min(first + 2 * CHUNK - 2, #events - 1), 2 do
        local total, units = parse(events[i])
        args[#args + 1] = events[i + 1] - earlier
        args[#args + 1] = format('%.0f:%.0f', total - lower, units)
      end
      call('ZADD', key, spread(args))
    end
  end

  -- Returns the state of a log, or nothing if there is none.
  local function settle(k, window)
    if not logs or logs[k] ~= window then
      return nil
    end
    local key, width = KEYS[k], window * 1000
    local log = { k = k, key = key, width = width }
    log.total, log.units, log.newest, log.member = event(key, -1)
    if not log.total then
      -- All events had expired, and so did the key.
      logs[k] = nil
      return nil
    end
    -- The instant to decide at, and how far the log must be moved back.
    local ahead = log.newest - now
    log.at = ahead > 0 and log.newest or now
    log.back = ahead > width and ahead or 0
    -- The rank of the first event that counts. The count includes the member at minus infinity.
    log.first = call('ZCOUNT', key, '-inf', log.at - width)
    local total, units, at = event(key, log.first)
    log.before = total and total - units or log.total
    log.counted = log.total - log.before
    log.first_total, log.first_at = total, at
    return log
  end

  -- Returns the instant of the last event that must leave for this many units to leave.
  local function leaves(log, units)
    local total = log.before + units
    if log.first_total >= total then
      return log.first_at
    end
    local last = call('ZCARD', log.key) - 1
    local _, _, at = event(log.key, rank_of(log.key, total, log.first + 1, last))
    return at
  end

  -- Reports the newest event, the units that count, and the last event that must leave before
  -- the request fits.
  local function assess(k, _, _, window, capacity, cost)
    local log = settle(k, window)
    if not log then
      return cost <= capacity, nil, { k = k, window = window, cost = cost }
    end
    log.cost = cost
    local too_many = log.counted + cost - capacity
    local leaving = 0
    if too_many > 0 and cost <= capacity then
      leaving = leaves(log, too_many)
    end
    local stored = pack('<ddd', log.newest, log.counted, leaving)
    return too_many <= 0, stored, log, nil, log
  end

  -- Writes a correction, which is needed even if the request is denied.
  local function correct(log)
    if log.back and log.back > 0 then
      rewrite_events(log.key, 1, log.back, 0)
      log.newest, log.at = log.newest - log.back, log.at - log.back
      local window, before = log.width / 1000, moved[log.k]
      moved[log.k] = before + log.back
      call('ZADD', log.key, '-inf', header_of(window, moved[log.k]))
      call('ZREM', log.key, header_of(window, before))
      log.back = 0
      expire_at(log.key, log.newest + log.width)
    end
  end

  -- Begins a log if there is none of this window.
  local function begin(k, window, cost)
    local key = KEYS[k]
    call('UNLINK', key)
    logs = logs or {}
    cells[k], dirty[k], logs[k] = nil, nil, window
    moved[k] = 0
    call('ZADD', key, '-inf', header_of(window, 0))
    add(key, now, cost, cost)
    expire_at(key, now + window * 1000)
  end

  -- Adds the units that were assessed.
  local function charge(log)
    if log.cost == 0 then
      return correct(log)
    elseif not log.key then
      return begin(log.k, log.window, log.cost)
    end
    correct(log)
    local key, total, units = log.key, log.total, 0
    if log.first > 1 then
      call('ZREMRANGEBYRANK', key, 1, log.first - 1)
    end
    if log.newest == log.at then
      -- Units of one instant are one event.
      call('ZREM', key, log.member)
      units = log.units
    end
    if total > MAX_TOTAL then
      rewrite_events(key, 1, 0, log.before)
      total = total - log.before
    end
    add(key, log.at, total + log.cost, units + log.cost)
    expire_at(key, log.at + log.width)
  end

  local function remove(k)
    call('UNLINK', KEYS[k])
    logs[k] = nil
  end

  -- Sets the expiry of a log by its newest event; removes an empty log.
  local function expire_with_newest(k, width)
    local _, _, newest = event(KEYS[k], -1)
    if newest then
      expire_at(KEYS[k], newest + width)
    else
      remove(k)
    end
  end

  -- Takes the newest units off.
  local function refund(k, _, _, window, _, units)
    local log = settle(k, window)
    if not log then
      if logs and logs[k] then
        remove(k)
      end
      return
    end
    correct(log)
    units = units < log.counted and units or log.counted
    if units == 0 then
      return
    end
    local key, left = log.key, log.total - units
    local rank = rank_of(key, left + 1, log.first, call('ZCARD', key) - 1)
    local total, of_event, at = event(key, rank)
    call('ZREMRANGEBYRANK', key, rank, -1)
    if total - of_event < left then
      add(key, at, left, left - (total - of_event))
    end
    expire_with_newest(k, log.width)
  end

  -- Takes a charge off the event at `mark`, and off no other. The newest units, which a refund
  -- takes, may belong to another request.
  local function undo(k, _, _, window, _, units, _, _, _, mark)
    if not logs or logs[k] ~= window then
      return
    end
    local key = KEYS[k]
    local rank = call('ZCOUNT', key, '-inf', format('(%.0f', mark))
    local total, of_event, at, member = event(key, rank)
    if at ~= mark then
      return
    end
    units = units < of_event and units or of_event
    call('ZREM', key, member)
    rewrite_events(key, rank, 0, units)
    if units < of_event then
      add(key, mark, total - units, of_event - units)
    end
    expire_with_newest(k, window * 1000)
  end

  local adjust, charged, mark_of
  if has_holds == 1 then
    -- Returns what `assess` would report after a charge of these units, as far as the log may owe
    -- them; nothing if there is no log and none is charged.
    function charged(k, window, capacity, cost, units)
      local log = settle(k, window)
      local counted, at = log and log.counted or 0, log and log.at or now
      units = math.max(0, math.min(units, 2 * capacity - counted))
      if not log and units == 0 then
        return nil
      end
      local too_many, leaving = counted + units + cost - capacity, 0
      if too_many > 0 and cost <= capacity then
        leaving = too_many <= counted and leaves(log, too_many) or at
      end
      return pack('<ddd', units > 0 and at or log.newest, counted + units, leaving)
    end

    -- Adjusts a charge to its real cost: takes units off the event at `mark`, or adds as many as
    -- the log may owe. Returns the units added.
    function adjust(k, owes, window, capacity, units, mark)
      local log = settle(k, window)
      if not log then
        if not owes then
          return 0
        end
        units = math.min(units, 2 * capacity)
        begin(k, window, units)
        return units
      end
      correct(log)
      if not owes then
        undo(k, nil, nil, window, nil, units, nil, nil, nil, mark - moved[k])
        return 0
      end
      log.cost = math.max(0, math.min(units, 2 * capacity - log.counted))
      charge(log)
      return log.cost
    end

    -- Returns the identity of the event of a charge.
    function mark_of(log)
      return log.key and log.at + moved[log.k] or now
    end
  end

  return {
    mark_of = mark_of,
    adjust = adjust,
    charged = charged,
    window_of = window_of,
    assess = assess,
    correct = correct,
    charge = charge,
    refund = refund,
    undo = undo,
  }
end
