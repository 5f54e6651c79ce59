-- Removes a record for an operator.
-- Guard: the owner that was read; completed or expired, unless a record in any state may go.
-- KEYS: 2 the watch list, 3 the log
-- ARGV: 1 owner that was read, 2 1 if a record in any state may go, 3 and following: entry of the
-- log, without what it says of the record
-- Returns 1 removed, 2 removed and the record had an input, 0 kept.
local r, now = read(), time()
if not r or r.owner ~= ARGV[1] then
    return 0
end
to_absolute_times(r)
if r.state ~= COMPLETED and ARGV[2] ~= '1' and not expired(r, now) then
    return 0
end
log_from(3, r, now)
redis.call('DEL', KEYS[1])
unwatch()
return passed(r)
