-- Appends an entry to the history of a record that has not expired.
-- ARGV: 1 letter of the entry
local r, now = read(), time()
if not r or expired(to_absolute_times(r), now) then
    return
end
local recording = recording_of(r)
append_history(r, ARGV[1], now)
redis.call('SET', KEYS[1], encode(r) .. recording, 'KEEPTTL')
