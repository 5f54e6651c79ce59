-- Deletes a record for an operator.
-- Guard: the owner that was read; completed, or expired, unless it may be in any state.
-- ?1 id, ?2 owner that was read, ?3 1 if it may be held or in flight
DELETE FROM {schema}`{table}`
WHERE id = ?1
  AND owner = ?2
  AND (?3 = 1
       OR state = 2
       OR (state = 1 AND abandoned = 0 AND lease_until <= {now} AND expires_at <= {now}))
