-- From the short form of a grant that was never renewed (n AT ID STATIC) to the long one (h LAST ID RECORD).
local function expand(v)
  local at, static = string.sub(v, 3, 18), string.sub(v, 53)
  local number, lease = tonumber(at), tonumber(string.sub(static, 2, 17))
  if not number or not lease then
    return v -- Not ours: what comes next says so.
  end
  local last = number + BLOCK - 1
  return string.format('h %016d %s %016d %s %s %016d %s %s 1 q 0000000000000000 %s',
    last, string.sub(v, 20, 51), number + lease, at, at, last, at, at, static)
end
