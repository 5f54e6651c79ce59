-- Precedes complete.lua: completes a claim that only its first owner has written, within its ttl,
-- in a quarter of the time. record.lua describes the bytes.
local head = redis.call('GETRANGE', KEYS[1], 0, 90)
if #head == 91 and head:sub(1, 3) == '\1\1\0' and head:sub(8, 23) == ARGV[1]
    and head:sub(68, 75) == '\0\0\0\0\0\0\0\0' then
    -- Without GRACE, which applies to claims only.
    local left = redis.call('PTTL', KEYS[1]) - 3600000
    if left > 0 then
        redis.call('SET', KEYS[1], '\1\2' .. head:sub(3) .. ARGV[2], 'PX', left)
        return 1
    end
end
