-- Renews the lease of a claim that was sent again because its acknowledgment was lost.
-- Guard: the record is in flight and owned by the caller.
-- ?1 id, ?2 owner, ?3 lease in ms
UPDATE {schema}`{table}`
SET lease = ?3, lease_until = {now} + ?3, watch = first_seen
WHERE id = ?1
  AND owner = ?2
  AND state = 1
