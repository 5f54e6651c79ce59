-- Removes a record from the watch list if it was completed without a script.
-- KEYS: 2 the watch list
local r = read()
if r and r.state == COMPLETED then
    unwatch()
end
