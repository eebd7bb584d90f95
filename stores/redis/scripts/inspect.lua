#!lua flags=allow-cross-slot-keys,allow-oom
-- How a lock stands. KEYS: the lock. ARGV: the node's tag. Answers as show.lua says.
-- @constants
local TAG = ARGV[1]
local t = @time
local now = t[1] * 1000000 + t[2]
local v = redis.call('GET', KEYS[1])
-- @expand
if v and string.sub(v, 1, 2) == 'n ' then
  v = expand(v)
end
if not v or (#v == 18 and string.sub(v, 1, 2) == 'f ') then
  return { now, 0 }
elseif string.sub(v, 1, 2) == 'h ' and (tonumber(string.sub(v, 53, 68)) or 0) > now then
  -- A look does not change how the lock is kept.
  return { now, 0, 'h', string.sub(v, 20, 51), string.sub(v, 53) }
end
local watched = @watched
-- @state
-- @show
open(KEYS[1])
expire()
save()
return show({})
