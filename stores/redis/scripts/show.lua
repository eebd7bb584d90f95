-- What people see of a lock: the time, the limit or 0, then for each entry its kind (h: holds, q: waits, b: barges), id and record.
local function show(out)
  out[#out + 1] = now
  out[#out + 1] = limit or 0
  local function entries(kind, kind_of)
    for at, id in ipairs(ids(kind, 0, -1)) do
      local e = get(id)
      if e then
        out[#out + 1] = kind_of(at)
        out[#out + 1] = id
        out[#out + 1] = record(e)
      end
    end
  end
  entries('q', function(at) return at <= held and 'h' or 'q' end)
  entries('b', function() return 'b' end)
  return out
end
