#!lua flags=allow-cross-slot-keys,allow-oom
-- An entry leaves: release and cancellation alike. KEYS: the lock. ARGV: the entry's id, the node's tag, the highest token that
-- was handed out or 0, and how it leaves (l: by itself, s: with its session). Answers 1 if it was there.
-- @constants
local v = redis.call('GET', KEYS[1])
local TAG = ARGV[2]
local watched = @watched
if v and string.sub(v, 20, 51) == ARGV[1] and not watched then
  -- The usual cases: nobody waits, so nothing has to be decided, and not even the time is needed.
  local mode, used = string.sub(v, 1, 2), tonumber(ARGV[3])
  local first = tonumber(string.sub(v, 3, 18))
  if mode == 'n ' and used >= first and used < first + BLOCK then
    -- What was not handed out of the block is given out again. The key lives as long as the lease would have and the retention
    -- after it, as it was written: a new end would cost a fifth of the whole.
    redis.call('SET', KEYS[1], 'f ' .. ARGV[3], 'KEEPTTL')
    return 1
  elseif mode == 'h ' then
    local last = first
    if used > 0 and used <= last then
      last = math.max(used, tonumber(string.sub(v, 87, 102)) - 1)
    end
    redis.call('SET', KEYS[1], string.format('f %016d', last), 'KEEPTTL')
    return 1
  end
end

local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
if v and not watched and ARGV[4] == 'l' and string.sub(v, 1, 2) == 'q ' then
  -- The usual hand-over: from the one that holds it alone to the next in line, who will hold it alone. The same as what state.lua
  -- does, without reading what nobody needs: a fifth of the time.
  local sub, format, key = string.sub, string.format, KEYS[1]
  local last, class, wanting = string.match(v, '^q (%d+) %d+ 1 %d+ (%S) %d+ (%d+)')
  local line = class == 'x' and wanting == '0' and redis.call('ZRANGE', key .. ':o', 0, 2)
  if line and line[1] == ARGV[1] and line[2] and redis.call('EXISTS', key .. ':b') == 0
    and #redis.call('ZRANGEBYSCORE', key .. ':x', '-inf', format('%d', now), 'LIMIT', 0, 1) == 0 then
    local records = redis.call('HMGET', key .. ':e', line[1], line[2])
    local mine, heir = records[1], records[2]
    if mine and heir and sub(heir, 192, 192) == 'x' then
      local used, first = tonumber(ARGV[3]), tonumber(last) + 1
      if used > 0 and sub(mine, 52, 67) == last and used < first then
        first = math.max(used + 1, tonumber(sub(mine, 35, 50)))
      end
      if now > first then
        first = now
      end
      last = format('%016d', first + BLOCK - 1)
      local token, started = format('%016d', first), sub(heir, 124, 124) == 'k' and '1' or '0'
      redis.call('HDEL', key .. ':e', line[1])
      redis.call('ZREM', key .. ':o', line[1])
      redis.call('ZREM', key .. ':x', line[1])
      redis.call('HSET', key .. ':e', line[2], sub(heir, 1, 17) .. token .. ' ' .. token .. ' ' .. last .. ' '
        .. format('%016d', now) .. sub(heir, 85, 102) .. started .. sub(heir, 104))
      redis.call('SET', key, 'q ' .. last .. sub(v, 19), 'KEEPTTL')
      local note = format('g %s %d %d %d %s %d', line[2], first, BLOCK, sub(heir, 142, 157), started, line[3] and 1 or 0)
      local session, tag = 's:' .. sub(heir, 159, 190), string.match(heir, '^%S+ (%S+)', 192)
      if tag == '-' then
        redis.pcall('PUBLISH', PREFIX .. session, note)
      else
        redis.pcall('SPUBLISH', PREFIX .. '{' .. tag .. '}:' .. session, note)
      end
      return 1
    end
  end
end
-- @expand
-- @state
open(KEYS[1])
expire()
local e = get(ARGV[1])
if e then
  remove(e)
  -- The tokens that it did not hand out are given out again, if nobody got higher ones meanwhile.
  local used = tonumber(ARGV[3])
  if e.first > 0 and used > 0 and e.tlast == last and used <= last then
    last = math.max(used, e.tfirst - 1)
  end
  if ARGV[4] == 's' then
    event('s', e)
  else
    event(e.first > 0 and 'r' or 'l', e)
  end
end
move_on()
save()
return e and 1 or 0
