-- Returns the ids of operations that can be resumed: abandoned, not held, and with their input.
-- In the order of their ids, so that pages can follow one another.
-- ?1 operation, ?2 id before the first one, or empty, ?3 maximum number of records
SELECT id
FROM {schema}`{table}` FORCE INDEX (watched)
WHERE watch IS NOT NULL
  AND input IS NOT NULL
  AND state = 1
  AND abandoned = 0
  AND lease_until <= {now}
  AND expires_at > {now}
  AND operation = ?1
  AND id > ?2
ORDER BY id
LIMIT ?3
