-- Makes a record older by moving its times back. A negative duration makes it younger, as a clock
-- does that is set back.
-- KEYS: 1 the record's key, 2 the watch list of its slot
-- ARGV: 1 the duration, in ms
-- Returns 1 if the key has expired with this, 0 if not.
local id, by = KEYS[1]:sub(-32), ARGV[1] + 0
local watched_at = redis.call('ZSCORE', KEYS[2], id)
if watched_at then
    redis.call('ZADD', KEYS[2], watched_at - by, id)
end
local value = redis.call('GET', KEYS[1])
if not value then
    return 0
end
local left, at = redis.call('PTTL', KEYS[1]), 60
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
    local first = 115
    for text = 102, 105 do
        first = first + value:byte(text)
    end
    local last = first + value:byte(106) - 1
    local history = value:sub(first, last):gsub('(.)(...........)', function(letter, appended_at)
        return letter .. string.format('%011x', tonumber(appended_at, 16) - by)
    end)
    value = value:sub(1, first - 1) .. history .. value:sub(last + 1)
    redis.call('SET', KEYS[1], value, 'KEEPTTL')
end
if left < 0 then
    return 0
end
redis.call('PEXPIRE', KEYS[1], left - by)
return left <= by and 1 or 0
