#!lua flags=allow-oom
-- The owner lives and wants to keep the lock. KEYS: marker, lock, line, slips. ARGV: the attempt, its entry, the ttl (ms; 0: it ends
-- when it ends), up to which token the counter must go, the highest token that it was given.
-- Answers: how the node stands; 1 if it still owns the lock, else why not (0 its time was over, 2 it was taken away, 3 this
-- node does not know its tokens); the first token, 1 if that counts, 1 if others wait, for how long it has it (ms), 1 if
-- somebody asked for it back.
-- Never takes what is free: somebody else may have come and gone in between.
-- @node
if standing < OPEN then
  return { standing, 3, 0, 0, 0, 0, 0 }
end
-- @lock
local ttl = tonumber(ARGV[3])
if owner ~= ARGV[1] then
  local why = 0
  if redis.call('HGET', KEYS[2], 'r') == ARGV[1] then
    why = 2
  elseif stored < tonumber(ARGV[5]) then
    why = 3
  end
  return { standing, why, 0, 0, 0, 0, 0 }
end
counter = math.max(counter, tonumber(ARGV[4]))
if ttl > 0 then
  ends = now + ttl * 1000
end
redis.call('HSET', KEYS[2], 'c', counter, 'e', ends)
keep()
if counter > top or ttl > longest then
  redis.call('HSET', KEYS[1], 'top', math.max(top, counter), 'longest', math.max(longest, ttl))
end
return { standing, 1, x, counted and 1 or 0, first_besides(ARGV[2]) and 1 or 0, math.floor((ends - now) / 1000),
  asked == owner and 1 or 0 }
