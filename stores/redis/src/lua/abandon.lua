-- Ends a claim without a response: the key becomes held, or its lease expires at once.
-- Guard: the record is in flight and owned by the caller.
-- KEYS: 2 the watch list if the policy is to hold
-- ARGV: 1 owner, 2 abandoned policy (0 retry, 1 hold)
-- Returns 1 passed, 0 fenced.
local r = read()
if not r or r.state ~= IN_FLIGHT or r.owner ~= ARGV[1] then
    return 0
end
to_absolute_times(r)
if r.abandoned == HOLD or ARGV[2] + 0 == HOLD then
    r.state = HELD
    append_history(r, 'h', time())
    watch(r)
else
    r.lease_until = 0
    append_history(r, 'a', time())
end
write(r)
return 1
