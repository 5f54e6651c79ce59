-- Returns entries of the log of operators' decisions, the latest first.
-- ?1 number before which they are, ?2 maximum number of entries
SELECT number, at, action, record_id, operation, `before`, after, actor, reason
FROM {schema}`{table}_audit`
WHERE number < ?1
ORDER BY number DESC
LIMIT ?2
