-- Reads a record without changing it.
-- Answers {now in ms, the packed record, when its key expires in ms or -1}, or nil.
local value = redis.call('GET', KEYS[1])
if not value then
    return nil
end
return { time(), value, redis.call('PEXPIRETIME', KEYS[1]) }
