#!lua flags=allow-cross-slot-keys,allow-oom
-- The number of permits of a semaphore changes. KEYS: the lock. ARGV: the new limit, the node's tag. Answers 0, or how many
-- permits somebody waits for that would no longer fit.
-- @constants
local TAG, wanted = ARGV[2], tonumber(ARGV[1])
local t = @time
local now = t[1] * 1000000 + t[2]
local watched = @watched
-- @expand
-- @state
open(KEYS[1])
expire()
local most = 0
local function most_of(those)
  for _, id in ipairs(those) do
    local e = get(id)
    if e and e.want == 'p' and e.n > most then
      most = e.n
    end
  end
end
most_of(ids('q', held, -1))
most_of(ids('b', 0, -1))
if most > wanted then
  save()
  return most
end
if limit then
  limit, dirty = wanted, true
  move_on()
end
save()
return 0
