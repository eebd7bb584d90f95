-- How a lock is kept: what is in its keys, read into tables and written back. All times are microseconds by this server's clock.
--
-- KEY        a string that begins with a letter, the highest token ever given out (16 digits), and the id of the holder:
--              f LAST                     nobody holds it and nobody waits; kept for the tokens' sake only
--              n AT ID STATIC             one holder since AT, whose first token is AT, not a semaphore's, and nobody else
--              h LAST ID RECORD           the same after a renewal: all there is, in one key
--              c AT SHORT SHORT… SOONEST KEEP     one exclusive holder since AT, whose first token is AT and whose block is the last,
--                                         and a few that want it next, exclusively and in this order
--              q LAST LIMIT HELD SEQ CLASS SUM WANTING KEEP      all else; the entries are in the keys below
-- KEY:e      a hash: the records of all entries by their id
-- KEY:o      the queue, holders first: ids by their number in line
-- KEY:b      those that barge: ids by their number in line
-- KEY:x      when each entry ends by itself
--
-- RECORD is END FIRST TFIRST TLAST AT SINCE (16 digits each) FLAGS KIND SEQ STATIC, and STATIC, which the client wrote, is
-- LEASE HOW PLACE SESSION WANT/OF TAG NAMELEN NAMELABEL. Widths are fixed, so that the quick paths need not parse. FLAGS is 1 if the
-- lease runs, and 2 more if the holder was asked to give the lock back; that one is never kept as n, h or c.
--
-- SHORT is ID END SINCE FLAG LENGTH STATIC with nothing behind it; LENGTH is the bytes of STATIC, and FLAG is what FLAGS is, or will be
-- when it holds. So a hand-over cuts off the front, and writes nothing else but the time. No entry ends before SOONEST, or after KEEP.
--
-- All but q is read into tables, changed there and written back. Longer queues would be read and written whole at every step:
-- in the four keys each step is logarithmic.
local sub, format = string.sub, string.format
local head, E, O, B, X
local last, limit, held, seq, class, sum, wanting, dirty
local keep -- In milliseconds, until when the keys of q are kept.
local queued, barging -- How many are in the queue and how many barge.
local small -- The entries by their id, if they are here and not in the four keys.
local lines -- Then this is their order.
local soonest, longest -- Of those that were not even parsed, if there are any.

-- How few of more than FEW must be left to be kept in one string again.
local FEWER = FEW / 2

-- An entry that has only come. All fields are named at once: a table that grows costs more than all the rest.
local function entry(id, static, since)
  local want, n, of, tag = string.match(static, '^(%a)(%d+)/(%d+) (%S+) ', 69)
  return {
    id = id,
    ends = 0,
    first = 0,
    tfirst = 0,
    tlast = 0,
    at = 0,
    since = since,
    started = 0,
    asked = false,
    kind = 'q',
    seq = 0,
    static = static,
    kept = sub(static, 1, 1) == 'k',
    lease = tonumber(sub(static, 2, 17)),
    place = tonumber(sub(static, 19, 34)),
    session = sub(static, 36, 67),
    want = want,
    n = tonumber(n),
    of = tonumber(of),
    tag = tag,
    short = nil,
  }
end

local function parse(id, record)
  local e, flags = entry(id, sub(record, 124), tonumber(sub(record, 86, 101))), tonumber(sub(record, 103, 103))
  e.ends = tonumber(sub(record, 1, 16))
  e.first = tonumber(sub(record, 18, 33))
  e.tfirst = tonumber(sub(record, 35, 50))
  e.tlast = tonumber(sub(record, 52, 67))
  e.at = tonumber(sub(record, 69, 84))
  e.started, e.asked = flags and flags % 2, flags and flags >= 2
  e.kind, e.seq = sub(record, 105, 105), tonumber(sub(record, 107, 122))
  return e
end

local function record(e)
  return format('%016d %016d %016d %016d %016d %016d %d %s %016d %s',
    e.ends, e.first, e.tfirst, e.tlast, e.at, e.since, e.started + (e.asked and 2 or 0), e.kind, e.seq, e.static)
end

local function foreign()
  error('LEASEHOLD the key ' .. head .. ' holds something that is not a lock')
end

-- The entry of a SHORT, of which read_few() only wrote down where it is.
local function parse_short(raw)
  local text, at = raw.short, raw.first
  local e = entry(raw.id, sub(text, 75), tonumber(sub(text, 51, 66)))
  e.ends, e.seq, e.short = tonumber(sub(text, 34, 49)), raw.seq, text
  if at > 0 then
    e.first, e.tfirst, e.tlast, e.at, e.started = at, at, at + BLOCK - 1, at, tonumber(sub(text, 68, 68))
  end
  if not e.ends or not e.since or not e.started or e.want ~= 'x' then
    foreign()
  end
  small[e.id] = e
  return e
end

local function short(e)
  local started = e.first > 0 and e.started or e.kept and 1 or 0
  return format('%s %016d %016d %d %04d ', e.id, e.ends, e.since, started, #e.static) .. e.static
end

local function get(id)
  if small then
    local e = small[id]
    return e and (e.static and e or parse_short(e))
  end
  local found = redis.call('HGET', E, id)
  return found and parse(id, found)
end

local function put(e)
  dirty = true
  if small then
    e.short = nil
  else
    redis.call('HSET', E, e.id, record(e))
  end
end

-- Those in line (q: the queue, b: who barges), from this one to that one; the first is 0, and the last -1.
local function ids(kind, from, to)
  if not small then
    return redis.call('ZRANGE', kind == 'q' and O or B, from, to)
  end
  local line, out = lines[kind], {}
  for at = from + 1, to < 0 and #line or math.min(to + 1, #line) do
    out[#out + 1] = line[at]
  end
  return out
end

-- How many are before it in the queue.
local function rank(e)
  if not small then
    return redis.call('ZRANK', O, e.id)
  end
  for at, id in ipairs(lines.q) do
    if id == e.id then
      return at - 1
    end
  end
end

local function was_queued(id)
  if small then
    return small[id] and small[id].kind == 'q'
  end
  return redis.call('ZSCORE', O, id)
end

local function ends_of(id)
  if small then
    return get(id).ends
  end
  return tonumber(redis.call('ZSCORE', X, id) or 0)
end

-- Keeps the keys of q for as long as anything in them, and the retention after it. Lengthened by more than needed, so that it is
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
  if small then
    put(e)
  else
    redis.call('ZADD', X, format('%d', ends), e.id)
    cover(e)
  end
end

local function write_new(e)
  local line, alone = e.kind == 'q' and O or B, queued + barging == 1
  redis.call('ZADD', line, e.seq, e.id)
  put(e)
  redis.call('ZADD', X, format('%d', e.ends), e.id)
  cover(e)
  -- A key that was not there has no end yet.
  if alone then
    redis.call('PEXPIREAT', E, format('%d', keep))
    redis.call('PEXPIREAT', X, format('%d', keep))
  end
  if alone or (e.kind == 'q' and queued or barging) == 1 then
    redis.call('PEXPIREAT', line, format('%d', keep))
  end
end

-- Puts a new entry at the back of the queue, or of those that barge.
local function add(e, kind)
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
  if small then
    small[e.id] = e
    table.insert(lines[kind], e.id)
    put(e)
  else
    write_new(e)
  end
end

local function holds(e)
  held = held + 1
  class = e.want
  sum = sum + e.n
end

local function unlist(e)
  local found = 0
  if not small then
    found = redis.call('ZREM', e.kind == 'q' and O or B, e.id)
  else
    for at, id in ipairs(lines[e.kind]) do
      if id == e.id then
        table.remove(lines[e.kind], at)
        found = 1
        break
      end
    end
  end
  if e.kind == 'q' then
    queued = queued - found
  else
    barging = barging - found
  end
  if e.want == 'p' then
    wanting = wanting - 1
  end
end

local function remove(e)
  dirty = true
  unlist(e)
  if small then
    small[e.id] = nil
  else
    redis.call('HDEL', E, e.id)
    redis.call('ZREM', X, e.id)
  end
  if e.first > 0 then
    held = held - 1
    sum = sum - e.n
    if held == 0 then
      class = '-'
    end
  end
end

-- The one that barges at this place goes behind the others.
local function to_the_back(e, at)
  seq = seq + 1
  e.seq = seq
  if small then
    table.insert(lines.b, table.remove(lines.b, at + 1))
  else
    redis.call('ZADD', B, seq, e.id)
  end
  put(e)
end

-- Those whose time is over, in no order.
local function ended()
  local over, gone = {}, {}
  if not small then
    over = redis.call('ZRANGEBYSCORE', X, '-inf', format('%d', now))
  elseif not soonest or soonest <= now then
    soonest = nil -- All are parsed now.
    over = ids('q', 0, -1)
    for _, id in ipairs(lines.b) do
      over[#over + 1] = id
    end
  end
  for _, id in ipairs(over) do
    local e = get(id)
    if e and (not small or e.ends <= now) then
      gone[#gone + 1] = e
    end
  end
  return gone
end

-- Starts anew, but for the last token.
local function clear()
  small, lines, soonest, longest = {}, { q = {}, b = {} }, nil, 0
  limit, held, seq, class, sum, wanting, keep, queued, barging = nil, 0, 0, '-', 0, 0, 0, 0, 0
end

local function read_spread(v)
  local l, h, s, c, m, w, k = string.match(v, '^(%d+) (%d+) (%d+) (%S) (%d+) (%d+) (%d+)', 20)
  limit, held, seq, class, sum, wanting, keep =
    tonumber(l), tonumber(h), tonumber(s), c, tonumber(m), tonumber(w), tonumber(k)
  if not keep then
    foreign()
  elseif limit == 0 then
    limit = nil
  end
  small = nil
  queued, barging = redis.call('ZCARD', O), redis.call('ZCARD', B)
  local entries = redis.call('HLEN', E)
  if entries ~= queued + barging or entries ~= redis.call('ZCARD', X) or held > queued then
    -- Somebody deleted or evicted a part of it. Holders learn it at their next renewal, and those that wait ask again.
    redis.call('DEL', E, O, B, X)
    clear()
    dirty = true
  end
end

local function read_one(e)
  if not e.ends or not e.lease or not e.tag then
    foreign()
  end
  add(e, 'q')
  holds(e)
  dirty = false
end

local function read_few(v)
  local at, stop = 20, #v - 32
  soonest, longest = tonumber(sub(v, -33, -18)), tonumber(sub(v, -16))
  while at < stop do
    local length = tonumber(sub(v, at + 69, at + 72))
    if not length then
      break
    end
    local id, behind = sub(v, at, at + 31), at + 74 + length
    seq = seq + 1
    small[id] = { id = id, short = sub(v, at, behind - 1), first = seq == 1 and last or 0, kind = 'q', seq = seq }
    lines.q[seq] = id
    at = behind
  end
  if at ~= stop or seq == 0 or not soonest or not longest then
    foreign()
  end
  last = last + BLOCK - 1
  queued, held, class = seq, 1, 'x'
end

local function open(key)
  head, E, O, B, X = key, key .. ':e', key .. ':o', key .. ':b', key .. ':x'
  last, dirty = 0, false
  clear()
  local v = redis.call('GET', head)
  if not v then
    return
  end
  local mode = sub(v, 1, 2)
  last = tonumber(sub(v, 3, 18))
  if not last then
    foreign()
  elseif mode == 'q ' then
    read_spread(v)
  elseif mode == 'c ' then
    read_few(v)
  elseif mode == 'h ' and #v > 176 then
    read_one(parse(sub(v, 20, 51), sub(v, 53)))
  elseif mode == 'n ' and #v > 120 then
    local e = entry(sub(v, 20, 51), sub(v, 53), last)
    e.ends, e.first, e.tfirst, e.tlast, e.at, e.started = last + (e.lease or 0), last, last, last + BLOCK - 1, last, 1
    last = e.tlast
    read_one(e)
  elseif mode ~= 'f ' or #v ~= 18 then
    foreign()
  end
end

-- Whether these can be kept as c.
local function are_plain(entries)
  local e = entries[1]
  local plain = held == 1 and class == 'x' and wanting == 0 and barging == 0 and not e.asked and e.first == e.at
    and e.tfirst == e.at and e.tlast == last and last == e.at + BLOCK - 1
  for at = 2, #entries do
    plain = plain and (entries[at].want or 'x') == 'x' -- Those that were not parsed are.
  end
  return plain
end

-- Few are left of many: back into one string, if they fit into it.
local function gather()
  if held ~= 1 or class ~= 'x' or wanting > 0 or barging > 0 then
    return
  end
  local line, entries = ids('q', 0, -1), {}
  for at, id in ipairs(line) do
    entries[at] = get(id)
  end
  if are_plain(entries) then
    redis.call('DEL', E, O, B, X)
    small, lines, soonest, longest = {}, { q = line, b = {} }, nil, 0
    for _, e in ipairs(entries) do
      small[e.id] = e
    end
  end
end

local function spread(entries)
  -- What lies there is left of a lock whose key was deleted.
  redis.call('DEL', E, O, B, X)
  local records, lines_of, ends, until_when = {}, { q = {}, b = {} }, {}, 0
  for _, e in ipairs(entries) do
    e = get(e.id)
    local line = lines_of[e.kind]
    records[#records + 1], records[#records + 2] = e.id, record(e)
    line[#line + 1], line[#line + 2] = e.seq, e.id
    ends[#ends + 1], ends[#ends + 2] = format('%d', e.ends), e.id
    until_when = math.max(until_when, e.ends + 2 * e.place)
  end
  redis.call('HSET', E, unpack(records))
  redis.call('ZADD', X, unpack(ends))
  if queued > 0 then
    redis.call('ZADD', O, unpack(lines_of.q))
  end
  if barging > 0 then
    redis.call('ZADD', B, unpack(lines_of.b))
  end
  keep = math.ceil(until_when / 1000) + RETENTION
  for _, key in ipairs({ E, O, B, X }) do
    redis.call('PEXPIREAT', key, format('%d', keep))
  end
  small = nil
end

local function write(text, ends)
  redis.call('SET', head, text, 'PX', format('%d', math.max(math.ceil((ends - now) / 1000), 0) + RETENTION))
end

local function save_few(entries)
  local text, from, to = {}, soonest or math.huge, longest
  for at, e in ipairs(entries) do
    if e.static then
      from, to = math.min(from, e.ends), math.max(to, e.ends)
    end
    text[at] = e.short or short(e)
  end
  write(format('c %016d %s%016d %016d', last - BLOCK + 1, table.concat(text), from, to), to)
end

local function save()
  if not dirty then
    return
  end
  if not small and queued <= FEWER then
    gather()
  end
  if queued + barging == 0 then
    if not small then
      redis.call('DEL', E, O, B, X)
    end
    write(format('f %016d', last), now)
    return
  end
  if small then
    local entries, holder = {}, held > 0 and get(lines.q[1])
    for _, kind in ipairs({ 'q', 'b' }) do
      for _, id in ipairs(lines[kind]) do
        entries[#entries + 1] = small[id]
      end
    end
    if #entries == 1 and holder and holder.want ~= 'p' and not holder.asked then
      return write(format('h %016d %s %s', last, holder.id, record(holder)), holder.ends)
    elseif #entries <= FEW and are_plain(entries) then
      return save_few(entries)
    end
    spread(entries)
  end
  redis.call('SET', head, format('q %016d %d %d %d %s %d %d %d', last, limit or 0, held, seq, class, sum, wanting, keep),
    'PX', format('%d', keep - math.floor(now / 1000)))
end
