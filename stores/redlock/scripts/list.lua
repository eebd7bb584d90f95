#!lua flags=allow-oom
-- A part of the locks that somebody has or waits for on this node. KEYS: marker. ARGV: the cursor of the walk, the pattern.
-- Answers the next cursor (0 at the end) and names.
-- @node
local page = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 500)
local out = { page[1] }
for _, key in ipairs(page[2]) do
  local name = string.sub(key, #LOCKS + 1)
  local ends = tonumber(redis.call('HGET', key, 'e')) or 0
  if ends > now or redis.call('EXISTS', LINES .. name) == 1 then
    out[#out + 1] = name
  end
end
return out
