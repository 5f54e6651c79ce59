-- Appends an entry to the history of a record. One that has expired is still there, and becomes
-- valid again if the clock is set back.
-- ARGV: 1 letter of the entry
local r = read()
if not r then
    return
end
to_absolute_times(r)
local recording = recording_of(r)
append_history(r, ARGV[1], time())
redis.call('SET', KEYS[1], encode(r) .. recording, 'KEEPTTL')
