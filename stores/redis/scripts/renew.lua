#!lua flags=allow-cross-slot-keys,allow-oom
-- Owners of entries show that they are alive and ask how things stand. KEYS: locks, or one lock and its other keys. ARGV: the node's tag, then for each lock the
-- entry's id (32 digits), 1 if more tokens are wanted or else 0, and the highest token it was given or 0.
-- Answers with four numbers for each.
-- @constants
local TAG = ARGV[1]
local t = @time
local now = t[1] * 1000000 + t[2]
local out, slow = {}, nil

-- @expand
for i = 1, #ARGV - 1 do
  local key, ask = KEYS[i], ARGV[i + 1]
  local v = redis.call('GET', key)
  if v and string.sub(v, 1, 2) == 'n ' then
    v = expand(v)
  end
  -- The usual case: the only holder, whose lease is kept and still runs.
  if v and string.sub(v, 1, 2) == 'h ' and string.sub(v, 20, 51) == string.sub(ask, 1, 32)
    and string.sub(v, 176, 176) == 'k' and (tonumber(string.sub(v, 53, 68)) or 0) > now then
    local lease = tonumber(string.sub(v, 177, 192))
    local first, tail = tonumber(string.sub(v, 87, 102)), string.sub(v, 69)
    local front = string.sub(v, 1, 52)
    if string.sub(ask, 33, 33) == '1' then
      first = tonumber(string.sub(v, 3, 18)) + 1
      if now > first then
        first = now
      end
      local last = first + BLOCK - 1
      front = string.format('h %016d %s', last, string.sub(v, 20, 52))
      tail = string.format('%s%016d %016d%s', string.sub(v, 69, 86), first, last, string.sub(v, 120))
    end
    redis.call('SET', key, front .. string.format('%016d', now + lease) .. tail, 'PX', math.ceil(lease / 1000) + RETENTION)
    local at = 4 * i
    out[at - 3], out[at - 2], out[at - 1], out[at] = HELD, first, BLOCK, lease
  else
    slow = slow or {}
    slow[#slow + 1] = i
  end
end
if not slow then
  return out
end

local watched = @watched
-- @state

local function renew(ask)
  local id, more, token = sub(ask, 1, 32), sub(ask, 33, 33) == '1', tonumber(sub(ask, 34))
  local came_too_late = was_queued(id)
  expire()
  local e = get(id)
  if not e then
    local why = REVOKED
    if token == 0 or came_too_late then
      why = EXPIRED
    elseif last < token then
      why = WIPED
    end
    return GONE, why, 0, 0
  end
  if e.first == 0 and e.tag ~= TAG then
    -- The slot moved to another node since: messages go there now.
    local at = string.find(e.static, ' ', 69, true)
    e.static = sub(e.static, 1, at) .. TAG .. sub(e.static, at + 1 + #e.tag)
    e.tag = TAG
  end
  if e.kind == 'b' then
    return barge(e)
  elseif e.first == 0 then
    set_end(e, now + e.place)
    put(e)
    return waiting_answer(e)
  end
  if e.started == 0 or e.kept then
    e.started = 1
    set_end(e, now + e.lease)
  end
  if more then
    e.tfirst, e.tlast = next_block()
  end
  put(e)
  return held_answer(e)
end

for _, i in ipairs(slow) do
  open(KEYS[i])
  local at = 4 * i
  out[at - 3], out[at - 2], out[at - 1], out[at] = renew(ARGV[i + 1])
  save()
end
return out
