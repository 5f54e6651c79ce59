-- Adds a note of the handler to a claim. An empty text leaves that of the record as it is; the
-- result of a step is appended to those that are there.
-- Guard: the record is in flight and owned by the caller.
-- KEYS: 2 the watch list if the note holds the key
-- ARGV: 1 owner, 2 reference, 3 progress, 4 result of a step, 5 input, 6 1 to hold the key if the
-- attempt is abandoned
-- Returns 1 passed, 0 fenced.
local r = read()
if not r or r.state ~= IN_FLIGHT or r.owner ~= ARGV[1] then
    return 0
end
to_absolute_times(r)
for name, text in pairs({ reference = ARGV[2], progress = ARGV[3], input = ARGV[5] }) do
    if text ~= '' then
        r[name] = text
    end
end
r.steps = r.steps .. ARGV[4]
r.abandoned = math.max(r.abandoned, ARGV[6])
watch(r)
write(r)
return 1
