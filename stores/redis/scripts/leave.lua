#!lua flags=allow-cross-slot-keys,allow-oom
-- An entry leaves: release and cancellation alike. KEYS: the lock. ARGV: "n USED ID", where USED (16 digits) is the highest token that
-- was handed out or 0, and ID is the entry's; and how it leaves (l: by itself, s: with its session), with the node's tag behind it.
-- Answers 1 if it was there.
local call, sub = redis.call, string.sub
local v, mine = call('GET', KEYS[1]), ARGV[1]
local TAG = @cluster and sub(ARGV[2], 2) or '-'
local watched = @watched
if v and not watched and sub(v, 1, 51) == mine then
  -- The usual case: held since its first token and with no other, and nobody waits. Nothing has to be decided, and not even the time
  -- is needed. What was not handed out of the block is given out again. The key lives as long as the lease would have and the
  -- retention after it, as it was written: a new end would cost a fifth of the whole.
  call('SET', KEYS[1], 'f ' .. sub(mine, 3, 18), 'KEEPTTL')
  return 1
end

-- @constants
local id, used = sub(mine, 20), sub(mine, 3, 18)
local mode = v and not watched and sub(v, 1, 2)
local ours = mode and sub(v, 20, 51) == id
if ours and mode == 'h ' then
  local last, high = tonumber(sub(v, 3, 18)), tonumber(used)
  if high > 0 and high <= last then
    last = math.max(high, tonumber(sub(v, 87, 102)) - 1)
  end
  call('SET', KEYS[1], string.format('f %016d', last), 'KEEPTTL')
  return 1
end
local in_block = ours and used >= sub(v, 3, 18)
if in_block and mode == 'n ' and used - sub(v, 3, 18) < BLOCK then
  call('SET', KEYS[1], 'f ' .. used, 'KEEPTTL')
  return 1
end

local t = @time
local now = t[1] * 1000000 + t[2]
if mode == 'c ' and in_block and sub(ARGV[2], 1, 1) == 'l' then
  -- The usual hand-over, in one string: kept.lua says what is in it. The next in line begins where our entry ends.
  local text = #t[2] == 6 and t[1] .. t[2] or t[1] .. sub('00000' .. t[2], -6)
  local heir = 94 + sub(v, 89, 92)
  if heir == #v - 32 then
    -- Nobody waits any more.
    if used - sub(v, 3, 18) < BLOCK then
      call('SET', KEYS[1], 'f ' .. used, 'KEEPTTL')
      return 1
    end
  elseif used < text and text < sub(v, -33, -18) then
    -- The time has passed what was handed out, and nobody's time is over.
    local static = heir + 74
    local note = 'g ' .. sub(v, heir, heir + 31) .. ' ' .. text .. ' ' .. BLOCK .. ' ' .. sub(v, static + 18, static + 33) .. ' '
      .. sub(v, heir + 67, heir + 67) .. (static + sub(v, heir + 69, heir + 72) == #v - 32 and ' 0' or ' 1')
    local session = 's:' .. sub(v, static + 35, static + 66)
    call('SET', KEYS[1], 'c ' .. text .. ' ' .. sub(v, heir), 'KEEPTTL')
    if sub(v, static + 73, static + 74) == '- ' then
      redis.pcall('PUBLISH', PREFIX .. session, note)
    else
      redis.pcall('SPUBLISH', PREFIX .. '{' .. string.match(v, '^%S+', static + 73) .. '}:' .. session, note)
    end
    return 1
  end
elseif mode == 'q ' and sub(ARGV[2], 1, 1) == 'l' then
  -- The same where many wait, without reading what nobody needs: a third of the time.
  local format, key = string.format, KEYS[1]
  local last, class, wanting = string.match(v, '^q (%d+) %d+ 1 %d+ (%S) %d+ (%d+)')
  local line = class == 'x' and wanting == '0' and call('ZRANGE', key .. ':o', 0, 2)
  if line and line[1] == id and line[2] and call('EXISTS', key .. ':b') == 0
    and #call('ZRANGEBYSCORE', key .. ':x', '-inf', format('%d', now), 'LIMIT', 0, 1) == 0 then
    local records = call('HMGET', key .. ':e', line[1], line[2])
    local own, heir = records[1], records[2]
    if own and heir and sub(heir, 192, 192) == 'x' then
      local high, first = tonumber(used), tonumber(last) + 1
      if high > 0 and sub(own, 52, 67) == last and high < first then
        first = math.max(high + 1, tonumber(sub(own, 35, 50)))
      end
      if now > first then
        first = now
      end
      last = format('%016d', first + BLOCK - 1)
      local token, started = format('%016d', first), sub(heir, 124, 124) == 'k' and '1' or '0'
      call('HDEL', key .. ':e', line[1])
      call('ZREM', key .. ':o', line[1])
      call('ZREM', key .. ':x', line[1])
      call('HSET', key .. ':e', line[2], sub(heir, 1, 17) .. token .. ' ' .. token .. ' ' .. last .. ' '
        .. format('%016d', now) .. sub(heir, 85, 102) .. started .. sub(heir, 104))
      call('SET', key, 'q ' .. last .. sub(v, 19), 'KEEPTTL')
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
local e = get(id)
if e then
  remove(e)
  -- The tokens that it did not hand out are given out again, if nobody got higher ones meanwhile.
  used = tonumber(used)
  if e.first > 0 and used > 0 and e.tlast == last and used <= last then
    last = math.max(used, e.tfirst - 1)
  end
  if sub(ARGV[2], 1, 1) == 's' then
    event('s', e)
  else
    event(e.first > 0 and 'r' or 'l', e)
  end
end
move_on()
save()
return e and 1 or 0
