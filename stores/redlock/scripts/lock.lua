-- One lock on this node: who owns it, who waits, and who is told.
--
-- KEYS[2]  a hash: c the counter; and while somebody owns it: id the attempt (the entry's id, a dot, a number), x its first
--          token, k 1 if that counts, e when it ends, s the session, l the label, h since when; r the last attempt that it was
--          taken away from; p the last attempt that was asked to give it back; n and u: the entry whose turn it is, and until when;
--          d 1 if the next is told though the owner's attempt fails: since it has the lock an entry that waits was denied, or went away
-- KEYS[3]  those that wait, in the order in which they will be told: their entries by the time they came, those that barge last
-- KEYS[4]  what each of them said: when its place ends, since when it waits, 1 if it barges, its session and its label
local lock = redis.call('HMGET', KEYS[2], 'c', 'id', 'x', 'k', 'e', 'n', 'u', 'p', 'd')
local stored = tonumber(lock[1]) or 0
local owner, x, counted, ends = lock[2], tonumber(lock[3]), lock[4] == '1', tonumber(lock[5])
local turn, turn_ends, asked, denied_a_waiter = lock[6], tonumber(lock[7]) or 0, lock[8], lock[9] == '1'
-- A counter that was forgotten had been passed by the clock KEEP before: so it reads as that, and none is kept for ever.
local counter = math.max(stored, now - KEEP)
local name = string.sub(KEYS[2], #LOCKS + 1)

local function event(what, id, token, session, label)
  if watched then
    -- The name may hold anything, also what ends a text for string.format.
    redis.call('PUBLISH', EVENTS,
      string.format('%s\n%.0f\n%s\n%.0f\n%s\n%s\n', what, now, id, token, session, label) .. name)
  end
end

-- The hash lives until time has passed everything that is in it.
local function keep()
  local last = math.max(now, counter, owner and ends or 0)
  redis.call('PEXPIREAT', KEYS[2], math.ceil((last + KEEP) / 1000))
end

-- The owner goes: by itself, by time or by force.
local function vacate(what)
  if watched and what then
    local who = redis.call('HMGET', KEYS[2], 's', 'l')
    event(what, owner, x, who[1], who[2])
  end
  redis.call('HDEL', KEYS[2], 'id', 'x', 'k', 'e', 's', 'l', 'h', 'd')
  redis.call('HSET', KEYS[2], 'c', counter)
  owner = false
  keep()
end

if owner and ends <= now then
  vacate('e')
end

-- An entry stops waiting. Whether it did wait.
local function strike(entry, what)
  local slip = redis.call('HGET', KEYS[4], entry)
  if slip then
    redis.call('HDEL', KEYS[4], entry)
    redis.call('ZREM', KEYS[3], entry)
    if what then
      local session, label = string.match(slip, '^%d+:%d+:%d:(%x+):(.*)$')
      event(what, entry, 0, session, label)
    end
  end
  return slip and true
end

-- The first of those that wait and live, besides this one.
local function first_besides(entry)
  local at = 0
  while true do
    local found = redis.call('ZRANGE', KEYS[3], at, at)[1]
    if not found then
      return nil
    end
    local slip = redis.call('HGET', KEYS[4], found)
    if not slip then
      redis.call('ZREM', KEYS[3], found)
    elseif tonumber(string.match(slip, '^%d+')) <= now then
      strike(found, 'e')
    elseif found == entry then
      at = at + 1
    else
      return found, slip
    end
  end
end

-- Where an entry that comes now stands in the line.
local function behind(barges)
  return barges == '1' and now + BARGE or now
end

-- It is free: whose turn is it? That one is told, and goes to the back: if it never comes, the next time is another's. For a
-- moment nobody else gets in, so that those who wait are not starved by those who come.
local function call_the_next(besides)
  local entry, slip = first_besides(besides)
  if entry then
    turn, turn_ends = entry, now + TURN
    redis.call('HSET', KEYS[2], 'n', turn, 'u', turn_ends)
    local barges, session = string.match(slip, '^%d+:%d+:(%d):(%x+):')
    redis.call('ZADD', KEYS[3], behind(barges), entry)
    redis.call('PUBLISH', SESSIONS .. session, 'r' .. entry)
  elseif turn then
    turn = false
    redis.call('HDEL', KEYS[2], 'n', 'u')
  end
end

-- An entry waits, or goes on waiting.
local function register(entry, place, barges, session, label)
  local slip = redis.call('HGET', KEYS[4], entry)
  local came = slip and string.match(slip, '^%d+:(%d+):') or string.format('%.0f', now)
  redis.call('HSET', KEYS[4], entry,
    string.format('%.0f:%s:%s:%s:%s', now + place * 1000, came, barges, session, label))
  if not slip then
    redis.call('ZADD', KEYS[3], behind(barges), entry)
    event('q', entry, 0, session, label)
  end
  for i = 3, 4 do
    if redis.call('PTTL', KEYS[i]) < place then
      redis.call('PEXPIRE', KEYS[i], place)
    end
  end
end
