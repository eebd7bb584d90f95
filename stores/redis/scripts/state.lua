-- The state of one lock, and the rule: the holders are the longest compatible prefix of the queue.
--
-- This is crates/core/src/queue.rs in Lua, function by function; tests/rule.rs drives both with the same random histories and
-- compares every answer, note, event and token. All times are microseconds by this server's clock.
--
-- KEY        a string that begins with a letter and the highest token ever given out (16 digits):
--              f LAST                     nobody holds it and nobody waits; kept for the tokens' sake only
--              n AT ID STATIC             one holder since AT, whose first token is AT, not a semaphore's, and nobody else
--              h LAST ID RECORD           the same after a renewal: all there is, in one key
--              q LAST LIMIT HELD SEQ CLASS SUM WANTING KEEP      all else; the entries are in the keys below
-- KEY:e      a hash: the records of all entries by their id
-- KEY:o      the queue, holders first: ids by their number in line
-- KEY:b      those that barge: ids by their number in line
-- KEY:x      when each entry ends by itself
--
-- RECORD is END FIRST TFIRST TLAST AT SINCE (16 digits each) FLAGS KIND SEQ STATIC, and STATIC, which the client wrote, is
-- LEASE PLACE SESSION WANT/OF TAG NAMELEN NAMELABEL. Widths are fixed, so that the quick paths need not parse. FLAGS is 1 if the
-- lease runs, and 2 more if the holder was asked to give the lock back; that one is never kept as n or h.
local sub, format = string.sub, string.format
local head, E, O, B, X
local last, limit, held, seq, class, sum, wanting, keep, dirty
local queued, barging -- How many are in O and in B.

local function parse(id, record)
  local static, flags = sub(record, 124), tonumber(sub(record, 103, 103))
  local want, n, of, tag = string.match(static, '^(%a)(%d+)/(%d+) (%S+) ', 69)
  return {
    id = id,
    ends = tonumber(sub(record, 1, 16)),
    first = tonumber(sub(record, 18, 33)),
    tfirst = tonumber(sub(record, 35, 50)),
    tlast = tonumber(sub(record, 52, 67)),
    at = tonumber(sub(record, 69, 84)),
    since = tonumber(sub(record, 86, 101)),
    started = flags and flags % 2,
    asked = flags and flags >= 2,
    kind = sub(record, 105, 105),
    seq = tonumber(sub(record, 107, 122)),
    static = static,
    kept = sub(static, 1, 1) == 'k',
    lease = tonumber(sub(static, 2, 17)),
    place = tonumber(sub(static, 19, 34)),
    session = sub(static, 36, 67),
    want = want,
    n = tonumber(n),
    of = tonumber(of),
    tag = tag,
  }
end

local function record(e)
  return format('%016d %016d %016d %016d %016d %016d %d %s %016d %s',
    e.ends, e.first, e.tfirst, e.tlast, e.at, e.since, e.started + (e.asked and 2 or 0), e.kind, e.seq, e.static)
end

local function foreign()
  error('LEASEHOLD the key ' .. head .. ' holds something that is not a lock')
end

local function get(id)
  local found = redis.call('HGET', E, id)
  return found and parse(id, found)
end

local function put(e)
  dirty = true
  redis.call('HSET', E, e.id, record(e))
end

-- Keeps the keys for as long as anything in them, and the retention after it. Lengthened by more than needed, so that it is
-- rarely done.
local function cover(e)
  local need = math.ceil(e.ends / 1000) + tonumber(RETENTION)
  if need > keep then
    keep = need + 2 * math.ceil(e.place / 1000)
    for _, key in ipairs({ E, O, B, X }) do
      redis.call('PEXPIREAT', key, format('%d', keep))
    end
    dirty = true
  end
end

local function set_end(e, ends)
  e.ends = ends
  redis.call('ZADD', X, format('%d', ends), e.id)
  cover(e)
end

-- Puts a new entry at the back of the queue, or of those that barge.
local function add(e, kind)
  local line = kind == 'q' and O or B
  seq = seq + 1
  e.kind, e.seq = kind, seq
  if e.want == 'p' then
    wanting = wanting + 1
  end
  if kind == 'q' then
    queued = queued + 1
  else
    barging = barging + 1
  end
  redis.call('ZADD', line, seq, e.id)
  put(e)
  redis.call('ZADD', X, format('%d', e.ends), e.id)
  cover(e)
  for _, key in ipairs({ E, line, X }) do
    redis.call('PEXPIREAT', key, format('%d', keep))
  end
end

local function holds(e)
  held = held + 1
  class = e.want
  sum = sum + e.n
end

local function remove(e)
  dirty = true
  redis.call('HDEL', E, e.id)
  redis.call('ZREM', X, e.id)
  if e.kind == 'q' then
    queued = queued - redis.call('ZREM', O, e.id)
  else
    barging = barging - redis.call('ZREM', B, e.id)
  end
  if e.want == 'p' then
    wanting = wanting - 1
  end
  if e.first > 0 then
    held = held - 1
    sum = sum - e.n
    if held == 0 then
      class = '-'
    end
  end
end

-- Starts anew, but for the last token.
local function clear()
  redis.call('DEL', E, O, B, X)
  limit, held, seq, class, sum, wanting, keep, queued, barging = nil, 0, 0, '-', 0, 0, 0, 0, 0
end

local function open(key)
  head, E, O, B, X = key, key .. ':e', key .. ':o', key .. ':b', key .. ':x'
  last, dirty = 0, false
  local v = redis.call('GET', head)
  if v and sub(v, 1, 2) == 'n ' then
    v = expand(v)
  end
  local mode = v and sub(v, 1, 2)
  last = v and tonumber(sub(v, 3, 18)) or 0
  if mode == 'q ' then
    local l, h, s, c, m, w, k = string.match(v, '^(%d+) (%d+) (%d+) (%S) (%d+) (%d+) (%d+)', 20)
    limit, held, seq, class, sum, wanting, keep =
      tonumber(l), tonumber(h), tonumber(s), c, tonumber(m), tonumber(w), tonumber(k)
    if not keep then
      foreign()
    elseif limit == 0 then
      limit = nil
    end
    queued, barging = redis.call('ZCARD', O), redis.call('ZCARD', B)
    local entries = redis.call('HLEN', E)
    if entries ~= queued + barging or entries ~= redis.call('ZCARD', X) or held > queued then
      -- Somebody deleted or evicted a part of it. Holders learn it at their next renewal, and those that wait ask again.
      clear()
      dirty = true
    end
    return
  end
  -- What else may lie there is left of a lock whose key was deleted.
  clear()
  if mode == 'h ' and #v > 176 then
    local e = parse(sub(v, 20, 51), sub(v, 53))
    if not e.ends or not e.tag then
      foreign()
    end
    add(e, 'q')
    holds(e)
  elseif v and (mode ~= 'f ' or #v ~= 18 or not tonumber(sub(v, 3, 18))) then
    foreign()
  end
end

local function save()
  if not dirty then
    return
  end
  if queued + barging == 0 then
    redis.call('DEL', E, X)
    redis.call('SET', head, format('f %016d', last), 'PX', RETENTION)
  else
    redis.call('SET', head, format('q %016d %d %d %d %s %d %d %d', last, limit or 0, held, seq, class, sum, wanting, keep),
      'PX', format('%d', keep - math.floor(now / 1000)))
  end
end

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
    local e = get(redis.call('ZRANGE', B, at, at)[1])
    if fits(e) then
      tell(e, 'r ' .. e.id)
      seq = seq + 1
      e.seq = seq
      redis.call('ZADD', B, seq, e.id)
      put(e)
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
    local id = redis.call('ZRANGE', O, held, held)[1]
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
  local over = redis.call('ZRANGEBYSCORE', X, '-inf', format('%d', now))
  if #over == 0 then
    return
  end
  local gone = {}
  for _, id in ipairs(over) do
    gone[#gone + 1] = get(id)
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
  for _, id in ipairs(redis.call('ZRANGE', O, 0, held - 1)) do
    local ends = tonumber(redis.call('ZSCORE', X, id) or 0)
    if first < 0 or ends < first then
      first = ends
    end
  end
  return first < 0 and -1 or math.max(first - now, 0)
end

local function waiting_answer(e)
  if e.kind == 'q' then
    local place = redis.call('ZRANK', O, e.id) - held
    return WAITING, place, place == 0 and held > 0 and first_end_of_holders() or -1, 0
  end
  local is_first = redis.call('ZRANGE', B, 0, 0)[1] == e.id and not waits()
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
    barging = barging - redis.call('ZREM', B, e.id)
    if e.want == 'p' then
      wanting = wanting - 1
    end
    return enter(e)
  end
  set_end(e, now + e.place)
  put(e)
  return waiting_answer(e)
end
