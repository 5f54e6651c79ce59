-- Releases a held key for an operator.
-- Guard: the owner that was read; held, or in flight under "hold" with an expired lease.
-- ?1 id, ?2 owner that was read
DELETE FROM {schema}`{table}`
WHERE id = ?1
  AND owner = ?2
  AND (state = 3 OR (state = 1 AND abandoned = 1 AND lease_until <= {now}))
