#!lua flags=allow-cross-slot-keys,allow-oom
-- Takes the lock away from its holders, or asks them for it: all of them, or the one with this token. KEYS: the lock. ARGV: the
-- node's tag, the token or 0, and what is done (t: take it, a: ask for it).
-- Answers with the number of those whom it was done to, id and record of each, and then how the lock stands.
-- @constants
local TAG, token = ARGV[1], tonumber(ARGV[2])
local t = @time
local now = t[1] * 1000000 + t[2]
local watched = @watched
-- @expand
-- @state
-- @show
open(KEYS[1])
expire()
local holders = {}
for at = 0, held - 1 do
  holders[#holders + 1] = get(ids('q', at, at)[1])
end
local those = holders
if token > 0 then
  -- Of the one whose last block it is in, else of the last one whose grant began before it: holders that renew their tokens have
  -- blocks between those of others, and only the last block is remembered.
  local meant
  for _, e in ipairs(holders) do
    if not meant and token >= e.tfirst and token <= e.tlast then
      meant = e
    end
  end
  if not meant then
    for _, e in ipairs(holders) do
      if token >= e.first and token <= e.tlast and (not meant or e.first >= meant.first) then
        meant = e
      end
    end
  end
  those = { meant }
end
if ARGV[3] == 'a' then
  for _, e in ipairs(those) do
    -- Those that were asked before are told again, for they may have missed it; watchers see the first time only.
    if not e.asked then
      e.asked = true
      put(e)
      event('p', e)
    end
    tell(e, 'p ' .. e.id)
  end
else
  take_out(those, 'v', 'revoked')
  move_on()
end
save()
local out = { #those }
for _, e in ipairs(those) do
  out[#out + 1] = e.id
  out[#out + 1] = record(e)
end
return show(out)
