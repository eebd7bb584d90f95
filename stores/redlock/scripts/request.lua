#!lua flags=allow-oom
-- Asks an attempt to give the lock back. KEYS: marker, lock, line, slips. ARGV: the attempt. Answers 1 if it owns the lock here.
-- One that was asked before is told again, for it may have missed it; watchers see the first time only.
-- @node
if standing < OPEN then
  return 0
end
-- @lock
local id = ARGV[1]
if owner ~= id then
  return 0
end
local who = redis.call('HMGET', KEYS[2], 's', 'l')
if asked ~= id then
  redis.call('HSET', KEYS[2], 'p', id)
  event('p', id, x, who[1], who[2])
end
redis.call('PUBLISH', SESSIONS .. who[1], 'p' .. id)
return 1
