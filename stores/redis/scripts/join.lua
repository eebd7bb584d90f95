#!lua flags=allow-cross-slot-keys
-- Somebody asks for a lock. KEYS: the lock. ARGV: the entry's id, what to do if it is busy (q: queue, b: barge, a: go away) with
-- the node's tag behind it, the static part of the entry's record, and lease and retention together in milliseconds.
-- Answers with four numbers, or with the first token alone if the lock was free.
-- @constants
local v = redis.call('GET', KEYS[1])
local TAG, static = string.sub(ARGV[2], 2), ARGV[3]
local watched = @watched
local t = redis.call('TIME')
if (not v or (#v == 18 and string.sub(v, 1, 2) == 'f ')) and not watched and string.sub(static, 69, 69) ~= 'p' then
  -- The usual case: it is free, and one key says so and will say who holds it. Numbers stay text: as long as all have 16 digits,
  -- they compare alike.
  local now = t[1] .. string.sub('00000' .. t[2], -6)
  if not v or string.sub(v, 3, 18) < now then
    redis.call('SET', KEYS[1], 'n ' .. now .. ' ' .. ARGV[1] .. ' ' .. static, 'PX', ARGV[4])
    return now
  end
end

local now = t[1] * 1000000 + t[2]
-- @expand
if v and string.sub(v, 1, 2) == 'n ' then
  v = expand(v)
end
if v and string.sub(ARGV[2], 1, 1) == 'a' and string.sub(v, 1, 2) == 'h ' and (tonumber(string.sub(v, 53, 68)) or 0) > now
  and string.sub(v, 20, 51) ~= ARGV[1] and not (string.sub(v, 244, 244) == 's' and string.sub(static, 69, 69) == 's') then
  -- A try at a lock that somebody holds alone writes nothing.
  return { BUSY, 0, 0, 0 }
end

-- @state
open(KEYS[1])
expire()

local function answer()
  local otherwise = sub(ARGV[2], 1, 1)
  local e = get(ARGV[1])
  if e and e.kind == 'b' then
    return barge(e)
  elseif e and e.first > 0 then
    return held_answer(e)
  elseif e then
    set_end(e, now + e.place)
    put(e)
    return waiting_answer(e)
  end
  e = parse(ARGV[1], format('%016d %016d %016d %016d %016d %016d 0 q %016d %s', 0, 0, 0, 0, 0, now, 0, static))
  if e.want == 'p' then
    if limit and limit ~= e.of then
      return MISMATCH, limit, 0, 0
    end
    limit = e.of
  end
  if admits(e) then
    return enter(e)
  elseif otherwise == 'a' then
    forget_limit()
    return BUSY, 0, 0, 0
  end
  e.ends = now + e.place
  add(e, otherwise)
  event('q', e)
  return waiting_answer(e)
end

local a, b, c, d = answer()
save()
return { a, b, c, d }
