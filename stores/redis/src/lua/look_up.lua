-- Reads a record without changing it.
-- Returns {now in ms, encoded record, time in ms when its key expires or -1}, or nil.
-- A master that became a replica keeps its connections, and its record may be outdated. A replica
-- refuses writes by itself, but not reads.
if not redis.call('INFO', 'replication'):find('role:master', 1, true) then
    return redis.error_reply(
        'READONLY the server is a replica; records are read from the master only')
end
local value = redis.call('GET', KEYS[1])
if not value then
    return nil
end
return { time(), value, redis.call('PEXPIRETIME', KEYS[1]) }
