-- The owner gives the key back.
-- ARGV: 1 owner
-- Answers 1 passed, 0 fenced.
local r = read()
if not r or r.state ~= IN_FLIGHT or r.owner ~= ARGV[1] then
    return 0
end
redis.call('DEL', KEYS[1])
return 1
