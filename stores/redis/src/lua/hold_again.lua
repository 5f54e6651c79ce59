-- Writes a held record again, so that a WAIT on this connection covers it.
-- Guard: the record is held and owned by the caller.
-- ARGV: 1 owner
-- Returns 1 passed, 0 fenced.
local r = read()
if not r or r.state ~= HELD or r.owner ~= ARGV[1] then
    return 0
end
write_again()
return 1
