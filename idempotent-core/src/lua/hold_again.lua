-- Writes a held record again, so that a WAIT on this connection waits for it.
-- ARGV: 1 owner
-- Answers 1 held by this owner, 0 not.
local r = read()
if not r or r.state ~= HELD or r.owner ~= ARGV[1] then
    return 0
end
write_again()
return 1
