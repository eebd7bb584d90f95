#!lua flags=allow-cross-slot-keys
-- Somebody asks for a lock. KEYS: the lock. ARGV: the entry's id and, after a space, the static part of its record (whose HOW says what
-- to do if it is busy: q: queue, b: barge, a: go away); lease and retention together in milliseconds; and p, if permits are wanted.
-- Answers with four numbers, or with the first token alone if the lock was free.
local call, sub = redis.call, string.sub
local v, ask = call('GET', KEYS[1]), ARGV[1]
local TAG = @cluster and string.match(ask, '^%S+ (%S+)', 102) or '-'
local watched = @watched
local t = @time
-- Numbers stay text: as long as all have 16 digits, they compare alike.
local text = #t[2] == 6 and t[1] .. t[2] or t[1] .. sub('00000' .. t[2], -6)
if (not v or (#v == 18 and sub(v, 1, 2) == 'f ' and sub(v, 3) < text)) and not watched and not ARGV[3] then
  -- The usual case: it is free, and one key says so and will say who holds it.
  call('SET', KEYS[1], 'n ' .. text .. ' ' .. ask, 'PX', ARGV[2])
  return text
end

-- @constants
local now, id, how, static = tonumber(text), sub(ask, 1, 32), sub(ask, 51, 51), sub(ask, 34)
-- @expand
if v and how == 'a' then
  -- A try at a lock that somebody else holds alone writes nothing.
  local long = sub(v, 1, 2) == 'n ' and expand(v) or v
  local mode, busy = sub(long, 1, 2), false
  if mode == 'c ' then
    busy = sub(v, -33, -18) > text and not string.find(v, id, 20, true)
  elseif mode == 'h ' then
    busy = sub(long, 53, 68) > text and sub(v, 20, 51) ~= id and not (sub(long, 244, 244) == 's' and sub(static, 69, 69) == 's')
  end
  if busy then
    return { BUSY, 0, 0, 0 }
  end
end

local mode = how == 'q' and v and not watched and sub(static, 69, 69) == 'x' and sub(v, 1, 2)
if mode == 'c ' or (mode == 'n ' and sub(v, 121, 121) == 'x') then
  -- The usual wait: at the end of a short queue that is kept as c, or will be. The same as what state.lua does, a third of the time.
  local format = string.format
  local entries, length, soonest, last, keep, body = 0, #v, nil, nil, nil, nil
  if mode == 'n ' then
    soonest = format('%016d', sub(v, 3, 18) + sub(v, 54, 69))
    entries, keep = 1, soonest
    body = sub(v, 20, 52) .. soonest .. sub(v, 2, 18) .. format(' 1 %04d ', length - 52) .. sub(v, 53)
  else
    soonest, keep, body = sub(v, -33, -18), sub(v, -16), sub(v, 20, -34)
    local at = 20
    while at < length - 32 do
      at, entries = at + 74 + sub(v, at + 69, at + 72), entries + 1
    end
  end
  if entries < FEW and soonest > text and not string.find(body, id, 1, true) then
    local place = tonumber(sub(static, 19, 34))
    local ends, first_end = format('%016d', now + place), sub(body, 34, 49)
    local me = id .. ' ' .. ends .. ' ' .. text .. (sub(static, 1, 1) == 'k' and ' 1 ' or ' 0 ') .. format('%04d ', #static) .. static
    local front = 'c ' .. sub(v, 3, 19) .. body .. me .. (ends < soonest and ends or soonest) .. ' '
    if ends > keep then
      call('SET', KEYS[1], front .. ends, 'PX', math.ceil(place / 1000) + RETENTION)
    else
      call('SET', KEYS[1], front .. keep, 'KEEPTTL')
    end
    return { WAITING, entries - 1, entries == 1 and first_end - now or -1, 0 }
  end
end

-- @state
open(KEYS[1])
expire()

local function answer()
  local e = get(id)
  if e and e.kind == 'b' then
    return barge(e)
  elseif e and e.first > 0 then
    return held_answer(e)
  elseif e then
    set_end(e, now + e.place)
    put(e)
    return waiting_answer(e)
  end
  e = entry(id, static, now)
  if e.want == 'p' then
    if limit and limit ~= e.of then
      return MISMATCH, limit, 0, 0
    end
    limit = e.of
  end
  if admits(e) then
    return enter(e)
  elseif how == 'a' then
    forget_limit()
    return BUSY, 0, 0, 0
  end
  e.ends = now + e.place
  add(e, how)
  event('q', e)
  return waiting_answer(e)
end

local a, b, c, d = answer()
save()
return { a, b, c, d }
