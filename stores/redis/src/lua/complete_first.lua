-- Precedes complete.lua: completes a claim that only its first owner has written, within its ttl,
-- in a quarter of the time. record.lua describes the bytes. Such a claim has neither notes nor a
-- history, so it has at most 385 bytes, its times are relative, and it is not watched. Numbers are
-- passed as strings, since the server formats each as a fraction.
local head = redis.call('GETRANGE', KEYS[1], '0', '385')
if head:sub(1, 3) == '\1\1\0' and head:sub(8, 23) == ARGV[1]
    and head:sub(104, 114) == '\0\0\0\0\0\0\0\0\0\0\0'
    and #head == 114 + head:byte(102) + head:byte(103) then
    -- Without GRACE, which applies to claims only.
    local left = redis.call('PTTL', KEYS[1]) - 3600000
    if left > 0 then
        local completed = struct.pack('>I8I2', left, ARGV[3])
        local value = '\1\2' .. head:sub(3, 91) .. completed .. head:sub(102) .. ARGV[2]
        redis.call('SET', KEYS[1], value, 'PX', string.format('%d', left))
        return 1
    end
end
