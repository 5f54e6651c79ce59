-- An operator says what became of a held key: it was done, with this recording, or without one: it was not. A late first owner is
-- fenced from then on, since nobody's token is all zero.
-- ARGV: 1 the owner that was seen, 2 recording or nothing
-- Answers 1 resolved, 0 conflict.
local r, now = read(), time()
if not r or r.owner ~= ARGV[1] or r.state == COMPLETED then
    return 0
end
settle(r)
if r.state == IN_FLIGHT and not (r.abandoned == HOLD and lapsed(r, now)) then
    if shorten(r, now) then
        write(r)
    end
    return 0
end
if ARGV[2] then
    r.owner = string.rep('\0', 16)
    complete(r, ARGV[2], now)
else
    redis.call('DEL', KEYS[1])
end
return 1
