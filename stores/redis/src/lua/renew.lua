-- Renews a lease, also an expired one that has not been taken over.
-- Guard: the record is in flight and owned by the caller.
-- KEYS: 2 the watch list, or nothing
-- ARGV: 1 owner, 2 lease in ms
-- Returns 1 passed, 0 fenced.
local r = read()
if not r or r.state ~= IN_FLIGHT or r.owner ~= ARGV[1] then
    return 0
end
to_absolute_times(r)
r.lease = ARGV[2] + 0
r.lease_until = time() + r.lease
watch(r)
write(r)
return 1
