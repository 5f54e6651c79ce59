-- Adds an attempt to the index of those that have noted an input. It is a script because a full
-- server refuses the command alone.
-- KEYS: 1 the index
-- ARGV: 1 record id and owner
return redis.call('ZADD', KEYS[1], 0, ARGV[1])
