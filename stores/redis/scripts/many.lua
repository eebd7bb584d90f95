#!lua flags=allow-cross-slot-keys
-- Requests about many locks that were ready at the same moment. KEYS: the locks. ARGV: for each, the id of the entry that asks for it, or
-- what leave.lua is told if one leaves ("n USED ID"). If anybody asks there are two more, the same for all that do: the static part of
-- their records, and lease and retention together in milliseconds.
--
-- Only the usual cases of join.lua and leave.lua are done here, one after the other in this order. A lock that is in any other state is not
-- touched, and the client asks about it alone. So the server is held up for a bounded time, and nothing can fail half-way: what could, is
-- a pcall on one lock, and is not done either.
-- Answers with the first token of all that hold now; or with that and the numbers of those that were not done; or with 0 if none was.
local pcall, sub, keys, asks = redis.pcall, string.sub, KEYS, ARGV
if @watched then
  return 0 -- Somebody has to be told of each.
end
local count, text, front, back, undone = #keys, '0', nil, nil, nil
local keep = asks[count + 2]
if keep then
  local t = @time
  text = #t[2] == 6 and t[1] .. t[2] or t[1] .. sub('00000' .. t[2], -6)
  front, back = 'n ' .. text .. ' ', ' ' .. asks[count + 1]
end
for i = 1, count do
  local key, ask, done = keys[i], asks[i], nil
  local v = pcall('GET', key) -- An error is a table, whose length is 0.
  if #ask == 32 then
    if not v or (#v == 18 and sub(v, 1, 2) == 'f ' and sub(v, 3) < text) then
      done = pcall('SET', key, front .. ask .. back, 'PX', keep)
    end
  elseif v and #v > 51 and sub(v, 1, 51) == ask then
    done = pcall('SET', key, 'f ' .. sub(ask, 3, 18), 'KEEPTTL')
  end
  if not done or done.err then
    undone = undone or { text }
    undone[#undone + 1] = i
  end
end
return undone or text
