#!lua
-- Takes the lock on this node for an attempt, or says who is in the way. KEYS: marker, lock, line, slips.
-- ARGV: 1 the attempt, 2 its entry, 3 session, 4 label, 5 ttl (ms), 6 floor, 7 how many tokens, 8 up to which token the counter
-- must go (0, except for a lease that is planted here again), 9 for how long it waits if it is denied (ms, 0: not at all), 10 1 if it
-- barges.
-- Answers: how the node stands; then 1, the first token, 1 if it counts, 1 if others wait; or 0, for how long it is taken (ms), how
-- many wait before this one.
-- @node
if standing < OPEN then
  return { standing }
end
-- @lock
local id, entry, ttl, floor, up_to, place =
  ARGV[1], ARGV[2], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[8]), tonumber(ARGV[9])
local reserved = not owner and up_to == 0 and turn and turn ~= entry and turn_ends > now

if not owner and not reserved then
  -- Every token that anybody used here is at or below the counter, so this one is higher.
  x = math.max(counter, node_floor, floor) + 1
  counter = math.max(x + tonumber(ARGV[7]) - 1, up_to)
  owner, ends, counted = id, now + ttl * 1000, standing == OPEN
  redis.call('HSET', KEYS[2], 'c', counter, 'id', id, 'x', x, 'k', counted and 1 or 0, 'e', ends,
    's', ARGV[3], 'l', ARGV[4], 'h', now)
  if turn then
    redis.call('HDEL', KEYS[2], 'n', 'u')
  end
  keep()
  if counter > top or ttl > longest then
    redis.call('HSET', KEYS[1], 'top', math.max(top, counter), 'longest', math.max(longest, ttl))
  end
  event('a', id, x, ARGV[3], ARGV[4])
end

if owner == id then
  return { standing, 1, x, counted and 1 or 0, first_besides(entry) and 1 or 0 }
end
local before = 0
if place > 0 then
  register(entry, place, ARGV[10], ARGV[3], ARGV[4])
  before = redis.call('ZRANK', KEYS[3], entry) or 0
  if owner and not denied_a_waiter then
    redis.call('HSET', KEYS[2], 'd', 1)
  end
end
return { standing, 0, math.ceil(((owner and ends or turn_ends) - now) / 1000), before }
