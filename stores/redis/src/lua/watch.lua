-- Adds a record to the watch list, before a step that cannot do so itself.
-- KEYS: 1 the watch list
-- ARGV: 1 record id
local t = redis.call('TIME')
return redis.call('ZADD', KEYS[1], t[1] * 1000 + math.floor(t[2] / 1000), ARGV[1])
