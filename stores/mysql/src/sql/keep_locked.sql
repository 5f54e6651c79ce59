-- Marks records that this transaction has locked.
-- of each: ?1 id
UPDATE {schema}`{table}`
SET kept = 1
WHERE id IN ({each,:?1})
