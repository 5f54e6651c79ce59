-- Appended to record.lua: removes an expired record before its hour of grace is over, and shortens
-- a lease that is too long, as the next claim would, under the policy "retry".
-- KEYS: 1 the record's key, 2 the watch list of its slot
-- Returns 1 removed, 0 kept.
local r, now = read(), time()
if not r or r.state ~= IN_FLIGHT then
    return 0
end
to_absolute_times(r)
if expired(r, now) then
    return redis.call('DEL', KEYS[1])
end
if r.expires_at <= now and r.abandoned == 0 and shorten_lease(r, now) then
    write(r)
end
return 0
