-- Removes a record that has expired but for its hour of grace, as the server will when that is over, and shortens a lease that keeps it from
-- that, as the next claim will. It stands behind record.lua.
-- KEYS: 1 the record's key
-- Answers 1 removed, 0 kept.
local r, now = read(), time()
if not r or r.state ~= IN_FLIGHT then
    return 0
end
settle(r)
if expired(r, now) then
    return redis.call('DEL', KEYS[1])
end
if r.expires_at <= now and shorten(r, now) then
    write(r)
end
return 0
