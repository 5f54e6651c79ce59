-- Replaces bytes of a record. A part of which the caller has seen nothing stays as it is.
-- Guard: the owner and the bytes that were read.
-- ARGV: 1 owner that was read, 2 recording, 3 steps and 4 input that were read, 5 to 7 what they
-- become
-- Returns 1 replaced, 0 kept.
local r = read()
if not r or r.owner ~= ARGV[1] then
    return 0
end
r.recording = recording_of(r)
for i, name in ipairs({ 'recording', 'steps', 'input' }) do
    if ARGV[i + 1] ~= '' then
        if r[name] ~= ARGV[i + 1] then
            return 0
        end
        r[name] = ARGV[i + 4]
    end
end
redis.call('SET', KEYS[1], encode(r) .. r.recording, 'KEEPTTL')
return 1
