-- Which of these commands may our user not run? ARGV: for each of them the number of its words, then its words.
-- Answers with the places of those that are refused, counted from 1. Runs none of them.
local denied, at, place = {}, 1, 0
while ARGV[at] do
  local count = tonumber(ARGV[at])
  place = place + 1
  if not redis.acl_check_cmd(unpack(ARGV, at + 1, at + count)) then
    denied[#denied + 1] = place
  end
  at = at + count + 1
end
return denied
