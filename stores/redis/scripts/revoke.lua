#!lua flags=allow-cross-slot-keys,allow-oom
-- Takes the lock away from its holders, or from the one with this token. KEYS: the lock. ARGV: the node's tag, the token or 0.
-- Answers with the number of those it took it from, id and record of each, and then how the lock stands.
-- @constants
local TAG, token = ARGV[1], tonumber(ARGV[2])
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local watched = @watched
-- @expand
-- @state
-- @show
open(KEYS[1])
expire()
local holders = {}
for at = 0, held - 1 do
  holders[#holders + 1] = get(redis.call('ZRANGE', O, at, at)[1])
end
local gone = holders
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
  gone = { meant }
end
take_out(gone, 'v', 'revoked')
move_on()
save()
local out = { #gone }
for _, e in ipairs(gone) do
  out[#out + 1] = e.id
  out[#out + 1] = record(e)
end
return show(out)
