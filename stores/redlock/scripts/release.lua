#!lua flags=allow-oom
-- An entry gives back, gives up or goes away. KEYS: marker, lock, line, slips. ARGV: 1 the attempt, 2 its entry, 3 the highest token
-- that was used (0: none, -1: not known), 4 what happens:
--   r  it gives back what it held, and the next is told
--   a  its attempt failed: what it got here goes back, and it waits (5 for how long (ms), 6 1 if it barges, 7 session, 8 label)
--   g  its attempt failed, and it does not wait
--   n  its attempt failed; whether it waits is another attempt's affair
--   l  it waited, and does not want to any more
--   f  it holds the lock now, so it waits no longer
-- Answers 1 if the attempt owned the lock here.
-- A failed attempt wakes a waiter only if it kept one out here: that one may have found all nodes taken by attempts that failed,
-- and no holder's release would wake it. Otherwise the waiters would fail in the same way, and wake each other without an end.
-- An entry that goes away may have been woken here, have used its turn and failed: it passes the turn on, or the lock would be
-- free with a line of entries that nothing wakes. Each entry goes once, so this ends.
-- @node
if standing < OPEN then
  return 0
end
-- @lock
local id, entry, used, how = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local owned, gone = how ~= 'f' and owner == id, false
if owned then
  -- The tokens that it did not use go back: while it was the owner, nobody else got any here.
  if used >= 0 then
    counter = math.min(counter, math.max(used, x - 1))
  end
  vacate(how == 'r' and 'r' or nil)
end
if how == 'a' then
  register(entry, tonumber(ARGV[5]), ARGV[6], ARGV[7], ARGV[8])
elseif how ~= 'n' then
  local waited = strike(entry, how == 'l' and 'l' or nil)
  gone = how ~= 'f' and (waited or turn == entry)
end
local called = turn and turn ~= entry and turn_ends > now
if owner then
  if gone then
    redis.call('HSET', KEYS[2], 'd', 1)
  end
elseif how == 'r' or (gone and not called) then
  call_the_next('')
elseif owned and denied_a_waiter then
  call_the_next(entry)
end
return owned and 1 or 0
