#!lua flags=allow-oom
-- How this node stands, and what is done about it. KEYS: marker. ARGV: 1 what, and then what it needs. Nothing is done unless the
-- node still stands as the asker saw it.
--   look
--   new SET                          blank → new
--   clear SET                        new with this number → blank
--   open SET                         new with this number → open
--   quarantine SET                   blank (0) or new with this number → in quarantine
--   lift SINCE SET FLOOR LONGEST     the quarantine that began then → open
--   watch MS                         events are told for so long
-- Answers: the time, which process it is, how it stands now, the set, since when, the top, the longest lease, 1 if it was done.
-- @node
local what, arg = ARGV[1], tonumber(ARGV[2])
local me = identity()
local done = 0

local function become(standing_now, set_now)
  standing, set, since, done = standing_now, set_now, now, 1
  redis.call('HSET', KEYS[1], 'run', me, 'standing', standing, 'set', set, 'since', since, 'checked', now)
end

if what == 'new' and standing == BLANK then
  become(NEW, arg)
elseif what == 'clear' and standing == NEW and set == arg then
  redis.call('DEL', KEYS[1])
  standing, set, since, done = BLANK, 0, 0, 1
elseif what == 'open' and standing == NEW and set == arg then
  become(OPEN, arg)
elseif what == 'open' and standing == OPEN and set == arg then
  -- Somebody who helps was faster.
  done = 1
elseif what == 'quarantine' and ((standing == BLANK and arg == 0) or (standing == NEW and set == arg)) then
  become(QUARANTINED, 0)
elseif what == 'lift' and standing == QUARANTINED and since == arg then
  become(OPEN, tonumber(ARGV[3]))
  -- Its own clock as well: the last line if too many have forgotten.
  top = math.max(top, tonumber(ARGV[4]))
  longest = math.max(longest, tonumber(ARGV[5]))
  redis.call('HSET', KEYS[1], 'floor', math.max(node_floor, tonumber(ARGV[4]), now), 'top', top, 'longest', longest)
elseif what == 'watch' then
  redis.call('HSET', KEYS[1], 'watched', now + arg * 1000)
  done = 1
end
return { now, me, standing, set, since, top, longest, done }
