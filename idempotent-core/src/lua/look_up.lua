-- Reads a record without changing it.
-- Answers {now in ms, the packed record, when its key expires in ms or -1}, or nil.
-- A master that became a replica keeps its connections, and the new master may know better. A replica refuses what writes by itself.
if not redis.call('INFO', 'replication'):find('role:master', 1, true) then
    return redis.error_reply('READONLY the server is a replica; records are read from the master only')
end
local value = redis.call('GET', KEYS[1])
if not value then
    return nil
end
return { time(), value, redis.call('PEXPIRETIME', KEYS[1]) }
