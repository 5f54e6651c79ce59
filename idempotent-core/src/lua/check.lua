-- Calls every command that a step calls, for a key that does not exist: nothing changes, and a user who may not call one is found out.
-- Returns the name of the first command that fails and why, or nil.
local key = KEYS[1]
local calls = {
    { 'TIME' }, { 'GET', key }, { 'GETRANGE', key, 0, 0 }, { 'PTTL', key }, { 'PEXPIRETIME', key },
    { 'SET', key, '', 'XX', 'PX', 1 }, { 'DEL', key },
}
for _, call in ipairs(calls) do
    local result = redis.pcall(unpack(call))
    if type(result) == 'table' and result.err then
        return { call[1], result.err }
    end
end
return nil
