-- Executes every command that the scripts execute, for a key that does not exist, so that nothing
-- changes.
-- Returns nil, or the name and the error of the first command that fails.
local key = KEYS[1]
local calls = {
    { 'TIME' }, { 'GET', key }, { 'GETRANGE', key, 0, 0 }, { 'PTTL', key }, { 'PEXPIRETIME', key },
    { 'SET', key, '', 'XX', 'PX', 1 }, { 'DEL', key }, { 'ZADD', key, 'XX', 0, '' },
    { 'ZREM', key, '' }, { 'ZSCORE', key, '' },
    { 'XADD', key, 'NOMKSTREAM', '*', 'field', 'value' },
}
for _, call in ipairs(calls) do
    local result = redis.pcall(unpack(call))
    if type(result) == 'table' and result.err then
        return { call[1], result.err }
    end
end
return nil
