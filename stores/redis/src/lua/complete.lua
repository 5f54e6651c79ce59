-- Stores the recording and completes the claim. The recording of a completed record stays.
-- Guard: the record is owned by the caller. The lease is not tested.
-- KEYS: 2 the watch list, or nothing
-- ARGV: 1 owner, 2 recording, 3 status or 0
-- Returns 1 passed, 2 passed and the record had an input, 0 fenced.
local r = read()
if not r or r.owner ~= ARGV[1] then
    return 0
end
local result = passed(r)
if r.state ~= COMPLETED then
    complete(to_absolute_times(r), ARGV[2], ARGV[3], time(), 'd')
else
    write_again()
end
return result
