-- Reads the owners of records in flight, without waiting for locks.
-- of each: ?1 id
SELECT id, owner
FROM {schema}`{table}`
WHERE id IN ({each,:?1})
  AND state = 1
