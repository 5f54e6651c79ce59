-- Makes a record older by moving its times back. A negative duration makes it younger, as a clock
-- does that is set back.
-- KEYS: 1 the record's key
-- ARGV: 1 the duration, in ms
-- Returns 1 if the key has expired with this, 0 if not.
local value = redis.call('GET', KEYS[1])
if not value then
    return 0
end
local by, left, at = ARGV[1] + 0, redis.call('PTTL', KEYS[1]), 60
local lease_until, first_seen, expires_at = struct.unpack('>I8I8I8', value, at)
if first_seen ~= 0 then
    -- The lease of an abandoned record ended in 1970 (0), and is not moved.
    local moved_until = lease_until == 0 and 0 or lease_until - by
    local times = struct.pack('>I8I8I8', moved_until, first_seen - by, expires_at - by)
    value = value:sub(1, at - 1) .. times .. value:sub(at + 24)
    local completed_at = struct.unpack('>I8', value, 92)
    if completed_at ~= 0 then
        value = value:sub(1, 91) .. struct.pack('>I8', completed_at - by) .. value:sub(100)
    end
    redis.call('SET', KEYS[1], value, 'KEEPTTL')
end
if left < 0 then
    return 0
end
redis.call('PEXPIRE', KEYS[1], left - by)
return left <= by and 1 or 0
