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
    -- What was not handed out of the block is given out again.
    redis.call('SET', KEYS[1], 'f ' .. ARGV[3], 'PX', RETENTION)
    return 1
  elseif mode == 'h ' then
    local last = first
    if used > 0 and used <= last then
      last = math.max(used, tonumber(string.sub(v, 87, 102)) - 1)
    end
    redis.call('SET', KEYS[1], string.format('f %016d', last), 'PX', RETENTION)
    return 1
  end
end

local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
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
