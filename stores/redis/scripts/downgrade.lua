#!lua flags=allow-cross-slot-keys,allow-oom
-- A writer becomes a reader in its place. KEYS: the lock. ARGV: the entry's id, the node's tag. Answers 1 if it holds.
-- @constants
local TAG = ARGV[2]
local t = @time
local now = t[1] * 1000000 + t[2]
local watched = @watched
-- @expand
-- @state
open(KEYS[1])
expire()
local e = get(ARGV[1])
if not e or e.first == 0 then
  save()
  return 0
end
if e.want == 'x' then
  e.want, class = 's', 's'
  e.static = sub(e.static, 1, 68) .. 's' .. sub(e.static, 70)
  put(e)
end
move_on()
save()
return 1
