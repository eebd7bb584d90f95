#!lua flags=allow-oom
-- Takes the lock away from an attempt. KEYS: marker, lock, line, slips. ARGV: the attempt. Answers 1 if it owned the lock here.
-- @node
if standing < OPEN then
  return 0
end
-- @lock
local id = ARGV[1]
if owner ~= id then
  return 0
end
local session = redis.call('HGET', KEYS[2], 's')
vacate('v')
redis.call('HSET', KEYS[2], 'r', id)
redis.call('PUBLISH', SESSIONS .. session, 'g' .. id)
call_the_next('')
return 1
