-- The owner brings the answer. There is no test of time: whoever was not replaced may complete.
-- ARGV: 1 owner, 2 recording
-- Answers 1 passed, 0 fenced.
local r = read()
if not r or r.owner ~= ARGV[1] then
    return 0
end
if r.state ~= COMPLETED then
    complete(settle(r), ARGV[2], time())
else
    write_again()
end
return 1
