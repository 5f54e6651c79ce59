-- Ends a held key for an operator: completes it with a recording, or releases it. A completion
-- makes the owner all zeros, which fences a late owner.
-- Guard: the owner that was read; held, or in flight under "hold" with an expired lease.
-- KEYS: 2 the watch list, 3 the log
-- ARGV: 1 owner that was read, 2 1 to complete it, 3 recording, 4 status or 0, 5 and following:
-- entry of the log, without what it says of the record
-- Returns 1 resolved, 0 conflict.
local r, now = read(), time()
if not r or r.owner ~= ARGV[1] or r.state == COMPLETED then
    return 0
end
to_absolute_times(r)
if r.state == IN_FLIGHT and not (r.abandoned == HOLD and lease_expired(r, now)) then
    if shorten_lease(r, now) then
        write(r)
    end
    return 0
end
log_from(5, r, now)
if ARGV[2] == '1' then
    r.owner = string.rep('\0', 16)
    complete(r, ARGV[3], ARGV[4], now, 'r')
else
    redis.call('DEL', KEYS[1])
    unwatch()
end
return 1
