#!lua flags=allow-oom
-- How the lock stands on this node. KEYS: marker, lock, line, slips.
-- Answers: the time; the counter; the owner's attempt, token, end, session, label, since when (or an empty attempt), 1 if it was
-- asked to give the lock back; then for each that waits its entry and its slip.
-- @node
-- @lock
local out = { now, counter, '', 0, 0, '', '', 0, 0 }
if owner then
  local who = redis.call('HMGET', KEYS[2], 's', 'l', 'h')
  out = { now, counter, owner, x, ends, who[1], who[2], tonumber(who[3]), asked == owner and 1 or 0 }
elseif turn_ends <= now then
  -- Somebody's time is over, and nobody was there to tell the next.
  call_the_next('')
end
first_besides('')
for _, entry in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
  local slip = redis.call('HGET', KEYS[4], entry)
  if slip and tonumber(string.match(slip, '^%d+')) > now then
    out[#out + 1] = entry
    out[#out + 1] = slip
  end
end
return out
