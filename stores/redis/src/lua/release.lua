-- Deletes a claim, as if the key had never been claimed.
-- Guard: the record is in flight and owned by the caller.
-- KEYS: 2 the watch list, or nothing
-- ARGV: 1 owner
-- Returns 1 passed, 2 passed and the record had an input, 0 fenced.
local r = read()
if not r or r.state ~= IN_FLIGHT or r.owner ~= ARGV[1] then
    return 0
end
redis.call('DEL', KEYS[1])
unwatch()
return passed(r)
