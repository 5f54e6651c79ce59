-- Removes a record that has expired but for its hour of grace, as the server will when that is over. It stands behind record.lua.
-- KEYS: 1 the record's key
-- Answers 1 removed, 0 kept.
local r = read()
if r and r.state == IN_FLIGHT and expired(settle(r), time()) then
    return redis.call('DEL', KEYS[1])
end
return 0
