local SLOTS = 247
-- The states of slots by the number of their key, if there are any.
local slots

-- Returns the milliseconds until an instant, and at least one.
local function until_after_now(ends)
  return until_end(ends > now and ends or now + 1)
end

-- Concurrency: a sorted set of slots by the instant at which they end. Its first member, at minus
-- infinity, is `held1:<extra>:<shortest>`: how many more slots than members there are, and the
-- shortest of their longest holds. Every other member is the slots that one check of a hold took:
-- the id of the hold, the number of the check, the number of slots, and the longest span from the
-- present to their end, in us.
local function concurrency()
  local HELD, SLOTS_AT = '<c16I2I4I5', 19
  -- The most members that one command reads.
  local CHUNK = 100

  -- Returns the number of slots of a member, and the longest span to their end.
  local function slots_of(member)
    return unpack('<I4I5', member, SLOTS_AT)
  end

  -- Returns the first member as a state; nothing if it is foreign.
  local function header_of(first)
    local extra, shortest = string.match(first, '^held1:(%d+):(%d+)$')
    return extra and { member = first, extra = tonumber(extra), shortest = tonumber(shortest) }
  end

  -- Adds the new header first: if the server is out of memory, that fails and the old one stays.
  local function write_header(key, state)
    local member = format('held1:%.0f:%.0f', state.extra, state.shortest)
    if member ~= state.member then
      call('ZADD', key, '-inf', member)
      if state.member then
        call('ZREM', key, state.member)
      end
      state.member = member
    end
  end

  -- Returns when the last slots end.
  local function last_end(key)
    return tonumber(call('ZRANGE', key, -1, -1, 'WITHSCORES')[2])
  end

  local function expire_with_last(key)
    call('PEXPIRE', key, until_after_now(last_end(key)))
  end

  -- Moves the end of slots that would end later than their rule allows, because the clock went
  -- back.
  local function correct(key, state)
    local first = call('ZCOUNT', key, '-inf', now + state.shortest)
    local late = call('ZRANGE', key, first, -1, 'WITHSCORES')
    local corrected = false
    for i = 1, #late, 2 do
      local _, longest = slots_of(late[i])
      if late[i + 1] - now > longest then
        call('ZADD', key, now + longest, late[i])
        corrected = true
      end
    end
    if corrected then
      expire_with_last(key)
    end
  end

  -- Returns the number of slots in a range of ranks. Usually all members have one, and none needs
  -- to be read.
  local function sum(key, state, first, last)
    if state.extra == 0 then
      return last - first + 1
    end
    local total = 0
    for from = first, last, CHUNK do
      local some = call('ZRANGE', key, from, math.min(from + CHUNK - 1, last))
      for i = 1, #some do
        total = total + slots_of(some[i])
      end
    end
    return total
  end

  -- Returns when `needed` slots have ended, counted from a rank.
  local function end_of_many(key, state, rank, needed)
    if state.extra == 0 then
      rank, needed = rank + needed - 1, 0
    end
    while needed > 0 do
      local some = call('ZRANGE', key, rank, rank + CHUNK - 1)
      if #some == 0 then
        return 0
      end
      for i = 1, #some do
        needed = needed - slots_of(some[i])
        if needed <= 0 then
          rank = rank + i - 1
          break
        end
      end
      if needed > 0 then
        rank = rank + CHUNK
      end
    end
    return tonumber(call('ZRANGE', key, rank, rank, 'WITHSCORES')[2] or 0)
  end

  -- Reports the number of slots held, when the last of them ends, and when enough have ended for
  -- the request. Corrections are written at once, because they do not depend on the decision.
  local function assess(k, _, _, _, capacity, cost, number, longest)
    local key, state = KEYS[k], slots and slots[k]
    local taking = { k = k, number = number, slots = cost, longest = longest, ended = 0, ended_slots = 0 }
    if not state then
      return cost <= capacity, nil, taking
    end
    local last = last_end(key)
    if last - now > state.shortest then
      correct(key, state)
      last = last_end(key)
    end
    taking.last, taking.ended = last, call('ZCOUNT', key, 0, now)
    if taking.ended > 0 then
      taking.ended_slots = sum(key, state, 1, taking.ended)
    end
    local held = call('ZCARD', key) - 1 + state.extra - taking.ended_slots
    local too_many, enough = held + cost - capacity, 0
    if too_many > 0 and cost <= capacity then
      enough = end_of_many(key, state, taking.ended + 1, too_many)
    end
    local stored = pack('<I5I7I7', held, last > now and last or 0, enough)
    return too_many <= 0, stored, taking
  end

  -- Returns the member for the slots of a check.
  local function member_of(id, number, cost, longest)
    return pack(HELD, id, number, cost, longest)
  end

  -- Takes the slots that were assessed, for a hold. Returns when they end.
  local function charge(taking, hold)
    local k, cost, longest = taking.k, taking.slots, taking.longest
    if cost == 0 then
      return nil
    end
    local key = KEYS[k]
    slots = slots or {}
    local state = slots[k]
    if not state then
      call('UNLINK', key)
      cells[k], dirty[k] = nil, nil
      state = { extra = 0, shortest = longest }
      slots[k] = state
    elseif taking.ended > 0 then
      call('ZREMRANGEBYRANK', key, 1, taking.ended)
    end
    state.extra = state.extra - (taking.ended_slots - taking.ended) + cost - 1
    state.shortest = longest < state.shortest and longest or state.shortest
    write_header(key, state)
    local ends = now + (hold.span < longest and hold.span or longest)
    call('ZADD', key, ends, member_of(hold.id, taking.number, cost, longest))
    local last = taking.last
    call('PEXPIRE', key, until_after_now(last and last > ends and last or ends))
    return ends
  end

  -- Returns when the slots of a member end, if there are any.
  local function end_of(k, member)
    return slots and slots[k] and tonumber(call('ZSCORE', KEYS[k], member) or '')
  end

  -- Releases the slots of a member.
  local function release(k, member)
    local key, state = KEYS[k], slots and slots[k]
    if not state or not call('ZSCORE', key, member) then
      return
    end
    if call('ZCARD', key) == 2 then
      call('UNLINK', key)
      slots[k] = nil
      return
    end
    state.extra = state.extra - slots_of(member) + 1
    write_header(key, state)
    call('ZREM', key, member)
    expire_with_last(key)
  end

  -- Extends the slots of a member to a span from now, unless they have ended. Returns when they
  -- end.
  local function renew(k, member, span)
    local ends = end_of(k, member)
    if not ends or ends <= now then
      return nil
    end
    local _, longest = slots_of(member)
    ends = now + (span < longest and span or longest)
    call('ZADD', KEYS[k], ends, member)
    expire_with_last(KEYS[k])
    return ends
  end

  return {
    header_of = header_of,
    assess = assess,
    charge = charge,
    member_of = member_of,
    end_of = end_of,
    release = release,
    renew = renew,
  }
end

local slot

-- Returns a function of slots, defined when they are needed.
local function slots_function(name)
  slot = slot or concurrency()
  return slot[name]
end

-- Reads the first member of a sorted set, if it is one of slots.
local function inspect_slots(k, first)
  if first[2] == '-inf' then
    slots = slots or {}
    slots[k] = slots_function('header_of')(first[1])
  end
  return slots and slots[k]
end

-- Takes the slots that were assessed, for a hold.
local function charge_slots(taking, hold)
  local ends = slots_function('charge')(taking, hold)
  if ends and not (hold.ends and hold.ends > ends) then
    hold.ends = ends
  end
end

-- Releases the slots of a check, which are identified by their hold.
local function undo_slots(hold, k, cost, number, longest)
  slots_function('release')(k, slots_function('member_of')(hold.id, number, cost, longest))
end
