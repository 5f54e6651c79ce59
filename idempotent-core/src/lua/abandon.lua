-- The owner gives up: the key is held, or its lease is over at once so that the next request can take it.
-- ARGV: 1 owner, 2 abandoned
-- Answers 1 passed, 0 fenced.
local r = read()
if not r or r.state ~= IN_FLIGHT or r.owner ~= ARGV[1] then
    return 0
end
settle(r)
if r.abandoned == HOLD or ARGV[2] + 0 == HOLD then
    r.state = HELD
else
    r.lease_until = 0
end
write(r)
return 1
