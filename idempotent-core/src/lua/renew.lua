-- The owner is still at work. A lease that lapsed is revived while nobody has taken it.
-- ARGV: 1 owner, 2 lease in ms
-- Answers 1 passed, 0 fenced.
local r = read()
if not r or r.state ~= IN_FLIGHT or r.owner ~= ARGV[1] then
    return 0
end
settle(r)
r.lease = ARGV[2] + 0
r.lease_until = time() + r.lease
write(r)
return 1
