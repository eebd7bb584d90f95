-- What people see of a lock: the time, the limit or 0, then for each entry its kind (h: holds, q: waits, b: barges), id and record.
local function show(out)
  out[#out + 1] = now
  out[#out + 1] = limit or 0
  local function entries(line, kind_of)
    local ids = redis.call('ZRANGE', line, 0, -1)
    for at, id in ipairs(ids) do
      local found = redis.call('HGET', E, id)
      if found then
        out[#out + 1] = kind_of(at)
        out[#out + 1] = id
        out[#out + 1] = found
      end
    end
  end
  entries(O, function(at) return at <= held and 'h' or 'q' end)
  entries(B, function() return 'b' end)
  return out
end
