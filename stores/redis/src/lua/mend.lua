-- Corrects the entry of a record in the watch list: it is dropped if there is no open record, and
-- otherwise gets the time of the record.
-- KEYS: 2 the watch list
-- ARGV: 1 how old an entry is before it is dropped, in ms
local r, now = read(), time()
local score = redis.call('ZSCORE', KEYS[2], KEYS[1]:sub(-32))
if not score then
    return
end
if r and r.state ~= COMPLETED and not expired(to_absolute_times(r), now) then
    watch(r)
elseif score + ARGV[1] <= now then
    unwatch()
end
