-- The rule: the holders are the longest compatible prefix of the queue.
--
-- This is crates/core/src/queue.rs in Lua, function by function; src/against_the_rule.rs drives both with the same random histories and
-- compares every answer, note, event and token. Where the queue is, and in what form, kept.lua knows alone.
local function publish(tag, own, sharded, text)
  -- Nobody may listen, or we may not be allowed to speak: then those that wait find out by asking.
  if tag == '-' then
    redis.pcall('PUBLISH', PREFIX .. own, text)
  else
    redis.pcall('SPUBLISH', PREFIX .. '{' .. tag .. '}:' .. sharded, text)
  end
end

local function tell(e, text)
  local own = 's:' .. e.session
  publish(e.tag, own, own, text)
end

local function event(what, e)
  if watched then
    publish(TAG, 'e:' .. DB, 'e', format('%s %d %d %d %s%s', what, now, e.first, #head, head, e.static))
  end
end

local function next_block()
  local first = last + 1
  if now > first then
    first = now
  end
  last = first + BLOCK - 1
  dirty = true
  return first, last
end

local function waits()
  return queued > held
end

local function contended()
  return waits() or barging > 0
end

local function fits(e)
  if class == '-' then
    return e.want ~= 'p' or e.n <= (limit or e.of)
  elseif class == 's' then
    return e.want == 's'
  elseif class == 'p' then
    return e.want == 'p' and sum + e.n <= (limit or e.of)
  end
  return false
end

local function admits(e)
  return fits(e) and not waits()
end

local function call_a_barger()
  if waits() then
    return
  end
  for at = 0, barging - 1 do
    local e = get(ids('b', at, at)[1])
    if fits(e) then
      tell(e, 'r ' .. e.id)
      to_the_back(e, at)
      return
    end
  end
end

local function forget_limit()
  if limit and wanting == 0 then
    limit = nil
    dirty = true
  end
end

local function promote(e)
  e.first, e.tlast = next_block()
  e.tfirst, e.at = e.first, now
  e.started = e.kept and 1 or 0
  put(e)
  holds(e)
  event('a', e)
  tell(e, format('g %s %d %d %d %d %d', e.id, e.tfirst, BLOCK, e.place, e.started, contended() and 1 or 0))
end

local function move_on()
  while true do
    local id = ids('q', held, held)[1]
    if not id then
      break
    end
    local e = get(id)
    if not fits(e) then
      break
    end
    promote(e)
  end
  call_a_barger()
  forget_limit()
end

-- Takes entries out before their time, in the order of the queue and then of those that barge.
local function take_out(gone, what, why)
  table.sort(gone, function(a, b)
    if a.kind ~= b.kind then
      return a.kind == 'q'
    end
    return a.seq < b.seq
  end)
  for _, e in ipairs(gone) do
    remove(e)
  end
  for _, e in ipairs(gone) do
    event(what, e)
    tell(e, 'x ' .. e.id .. ' ' .. why)
  end
end

local function expire()
  local gone = ended()
  if #gone == 0 then
    return
  end
  take_out(gone, 'x', 'expired')
  move_on()
end

-- The answers. Each is four numbers; the first says what the others mean.
local function held_answer(e)
  local flags = HELD
  if contended() then
    flags = flags + CONTENDED
  end
  if e.started == 0 then
    flags = flags + NOT_STARTED
  end
  if e.asked then
    flags = flags + ASKED
  end
  return flags, e.tfirst, e.tlast - e.tfirst + 1, math.max(e.ends - now, 0)
end

local function first_end_of_holders()
  local first = -1
  for _, id in ipairs(ids('q', 0, held - 1)) do
    local ends = ends_of(id)
    if first < 0 or ends < first then
      first = ends
    end
  end
  return first < 0 and -1 or math.max(first - now, 0)
end

local function waiting_answer(e)
  if e.kind == 'q' then
    local place = rank(e) - held
    return WAITING, place, place == 0 and held > 0 and first_end_of_holders() or -1, 0
  end
  local is_first = ids('b', 0, 0)[1] == e.id and not waits()
  return WAITING, -1, is_first and held > 0 and first_end_of_holders() or -1, 0
end

-- A new or a barging entry holds at once.
local function enter(e)
  e.first, e.tlast = next_block()
  e.tfirst, e.at, e.started = e.first, now, 1
  e.ends = now + e.lease
  add(e, 'q')
  holds(e)
  event('a', e)
  call_a_barger()
  return held_answer(e)
end

-- One that barges tries again: it gets in, or its place is renewed.
local function barge(e)
  if admits(e) then
    unlist(e)
    return enter(e)
  end
  set_end(e, now + e.place)
  put(e)
  return waiting_answer(e)
end
