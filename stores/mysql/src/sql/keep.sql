-- Finds records past their ttl that are held or can become held, and locks them; skips those that
-- another transaction has locked. They are marked then, in the same transaction: a purge reads
-- them no more. A completion takes the mark back.
-- ?1 maximum number of records, ?2 the time
SELECT id
FROM {schema}`{table}`
WHERE kept = 0
  AND expires_at <= ?2
  AND (state = 3 OR (state = 1 AND abandoned = 1))
ORDER BY expires_at
LIMIT ?1
FOR UPDATE SKIP LOCKED
