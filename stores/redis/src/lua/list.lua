-- Reads what a list shows of a record: at most the longest header and texts up to the history.
-- Returns {now in ms, beginning of the encoded record, time in ms when its key expires or -1}.
return { time(), redis.call('GETRANGE', KEYS[1], 0, 1086), redis.call('PEXPIRETIME', KEYS[1]) }
