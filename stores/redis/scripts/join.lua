#!lua flags=allow-cross-slot-keys
-- Somebody asks for a lock. KEYS: the lock. ARGV: the entry's id, the node's tag, what to do if it is busy (q: queue, b: barge,
-- a: go away), and the static part of the entry's record.
-- @constants
local v = redis.call('GET', KEYS[1])
local TAG, static = ARGV[2], ARGV[4]
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local watched = redis.pcall('EXISTS', TAG == '-' and WATCHED or PREFIX .. '{' .. TAG .. '}:w') == 1
if (not v or string.sub(v, 1, 2) == 'f ') and not watched and string.sub(static, 69, 69) ~= 'p' then
  -- The usual case: it is free, and one key says so and will say who holds it.
  local first = v and tonumber(string.sub(v, 3, 18)) + 1 or now
  if now > first then
    first = now
  end
  local last, lease = first + BLOCK - 1, tonumber(string.sub(static, 2, 17))
  redis.call('SET', KEYS[1], string.format('h %016d %s %016d %016d %016d %016d %016d %016d 1 q 0000000000000000 %s',
    last, ARGV[1], now + lease, first, first, last, now, now, static), 'PX', math.ceil(lease / 1000) + RETENTION)
  return { HELD, first, BLOCK, lease }
end
if v and ARGV[3] == 'a' and string.sub(v, 1, 2) == 'h ' and tonumber(string.sub(v, 53, 68)) > now
  and string.sub(v, 20, 51) ~= ARGV[1] and not (string.sub(v, 244, 244) == 's' and string.sub(static, 69, 69) == 's') then
  -- A try at a lock that somebody holds alone writes nothing.
  return { BUSY, 0, 0, 0 }
end

-- @state
open(KEYS[1])
expire()

local function answer()
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
  elseif ARGV[3] == 'a' then
    forget_limit()
    return BUSY, 0, 0, 0
  end
  e.ends = now + e.place
  add(e, ARGV[3])
  event('q', e)
  return waiting_answer(e)
end

local a, b, c, d = answer()
save()
return { a, b, c, d }
