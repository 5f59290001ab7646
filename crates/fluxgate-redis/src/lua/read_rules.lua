-- Returns the texts of KEYS, or their size in bytes if that is above ARGV[1]. A key without a text
-- is nil. A user without access to STRLEN gets them in any case.
local size = 0
for _, key in ipairs(KEYS) do
  local length = redis.pcall('STRLEN', key)
  if type(length) == 'number' then
    size = size + length
  end
end
if size > tonumber(ARGV[1]) then
  return size
end
local texts = {}
for index, key in ipairs(KEYS) do
  local text = redis.pcall('GET', key)
  texts[index] = type(text) == 'string' and text
end
return texts
