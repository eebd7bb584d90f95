-- What every script begins with: the time, how this node stands, and how watchers are told.
--
-- KEYS[1] is the marker, a hash:
--   run       which process wrote it, and whose data it took over: its run id and the id of the master it was a replica of
--   standing  1 new, 2 open, 3 in quarantine; without a marker the node is blank (0)
--   set       the number that the set was founded with
--   since     when it came to stand so
--   floor     no token at or below it is given: what the others knew when a quarantine ended
--   top       the highest counter that any lock here ever had
--   longest   the longest lease that was ever granted here, in milliseconds
--   checked   when `run` was last compared with the process that runs now
--   watched   until when somebody wants to be told what happens
-- All other times are microseconds by this server's clock. They are below 2^53 until the year 2255, so exact in Lua.
local BLANK, NEW, OPEN, QUARANTINED = 0, 1, 2, 3
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local marker = redis.call('HMGET', KEYS[1], 'run', 'standing', 'set', 'since', 'floor', 'top', 'longest', 'checked', 'watched')
local standing, set, since = tonumber(marker[2]) or BLANK, tonumber(marker[3]) or 0, tonumber(marker[4]) or 0
local node_floor, top, longest = tonumber(marker[5]) or 0, tonumber(marker[6]) or 0, tonumber(marker[7]) or 0
local watched = (tonumber(marker[9]) or 0) > now

-- Which process this is. A replica that became a master has the id of its former master in master_replid2: it took over
-- another's data without a restart. (master_replid itself also changes when a replica is attached.)
local function identity()
  local info = redis.call('INFO', 'server', 'replication')
  return string.match(info, 'run_id:(%x+)') .. ':' .. string.match(info, 'master_replid2:(%x+)')
    .. ':' .. string.match(info, 'second_repl_offset:(%-?%d+)')
end

-- INFO takes three times as long as all the rest. No process ends, starts, loads its data and takes a connection within two
-- milliseconds, so a marker that was compared so recently need not be compared again.
local age = now - (tonumber(marker[8]) or 0)
if standing ~= BLANK and (age < 0 or age >= 2000) then
  local me = identity()
  if marker[1] ~= me then
    standing, set, since = QUARANTINED, 0, now
    redis.call('HSET', KEYS[1], 'run', me, 'standing', standing, 'set', set, 'since', since, 'checked', now)
  else
    redis.call('HSET', KEYS[1], 'checked', now)
  end
end
