-- Deletes a claim, as if the key had never been claimed.
-- Guard: the record is in flight and owned by the caller.
-- ?1 id, ?2 owner
DELETE FROM {schema}`{table}`
WHERE id = ?1
  AND owner = ?2
  AND state = 1
