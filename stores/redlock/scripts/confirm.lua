#!lua flags=allow-oom
-- The owner will use the tokens that begin with this one. KEYS: marker, lock, line, slips. ARGV: the attempt, the token, how many.
-- Answers: how the node stands, and 1 if it is so.
-- Never unconditional: if the attempt does not own the lock here any more, the next owner may have a higher token already. And only
-- upwards: a node that gave a higher token was free later than this token is.
-- @node
if standing ~= OPEN then
  return { standing, 0 }
end
-- @lock
local token = tonumber(ARGV[2])
if owner ~= ARGV[1] or not counted or x > token then
  return { standing, 0 }
end
x, counter = token, math.max(counter, token + tonumber(ARGV[3]) - 1)
redis.call('HSET', KEYS[2], 'x', x, 'c', counter)
keep()
if counter > top then
  redis.call('HSET', KEYS[1], 'top', counter)
end
if watched then
  local who = redis.call('HMGET', KEYS[2], 's', 'l')
  event('a', owner, x, who[1], who[2])
end
return { standing, 1 }
