-- What stands before the rest of complete.lua: most answers are for a claim that nobody but its claimer has written, within its ttl.
-- The bytes are those that record.lua describes; this takes a quarter of the time.
local head = redis.call('GETRANGE', KEYS[1], 0, 90)
if #head == 91 and head:sub(1, 3) == '\1\1\0' and head:sub(8, 23) == ARGV[1] and head:sub(68, 75) == '\0\0\0\0\0\0\0\0' then
    -- Without its hour of grace: an answer is gone when it expires.
    local left = redis.call('PTTL', KEYS[1]) - 3600000
    if left > 0 then
        redis.call('SET', KEYS[1], '\1\2' .. head:sub(3) .. ARGV[2], 'PX', left)
        return 1
    end
end
