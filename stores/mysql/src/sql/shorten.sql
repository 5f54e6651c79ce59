-- Limits a lease to its length from now; only a clock that was set back makes it longer.
-- Guard: in flight, the owner that was read, lease longer than its length.
-- ?1 id, ?2 owner that was read
UPDATE {schema}`{table}`
SET lease_until = {now} + lease
WHERE id = ?1
  AND owner = ?2
  AND state = 1
  AND lease_until > {now} + lease
