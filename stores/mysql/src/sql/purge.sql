-- Finds expired records, oldest first, and locks them; never a held one, one within its lease, or
-- one that another transaction has locked. They are deleted then, in the same transaction.
-- The order is that of the index: sorting would lock every record that is read.
-- ?1 maximum number of records, ?2 the time: a constant for the index, unlike the clock
SELECT id
FROM {schema}`{table}`
WHERE kept = 0
  AND expires_at <= ?2
  AND (state = 2 OR (state = 1 AND abandoned = 0 AND lease_until <= ?2))
ORDER BY expires_at
LIMIT ?1
FOR UPDATE SKIP LOCKED
