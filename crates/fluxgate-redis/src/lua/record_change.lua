-- Adds a change of a rule set to the list, unless its newest entry has the same revision, or there is
-- the same entry. An entry is `at<TAB>revision<TAB>set<TAB>who`. A revision that a process starts with
-- is a baseline, whose time is negative and which is no change, unless another one is known.
local key, ttl, at, revision, set, who = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local is_first, most = ARGV[6] == '1', tonumber(ARGV[7])
local newest = nil
for _, entry in ipairs(redis.call('LRANGE', key, 0, -1)) do
  local known_at, known_revision, known_set = string.match(entry, '^%-?(%d+)\t([^\t]*)\t([^\t]*)\t')
  if known_set == set then
    newest = newest or known_revision
    if newest == revision or (known_revision == revision and known_at == at) then
      redis.call('PEXPIRE', key, ttl)
      return 0
    end
  end
end
if is_first and not newest then
  at = '-' .. at
end
redis.call('LPUSH', key, table.concat({ at, revision, set, who }, '\t'))
redis.call('LTRIM', key, 0, most - 1)
redis.call('PEXPIRE', key, ttl)
return 1
