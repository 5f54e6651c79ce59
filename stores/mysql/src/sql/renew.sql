-- Finds which of many records are in flight, and locks them. Skips those that another transaction
-- has locked. Only the owner's are renewed then, in the same transaction.
-- of each: ?1 id
SELECT id, owner
FROM {schema}`{table}`
WHERE id IN ({each,:?1})
  AND state = 1
FOR UPDATE SKIP LOCKED
