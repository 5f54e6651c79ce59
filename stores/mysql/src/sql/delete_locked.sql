-- Deletes records that this transaction has locked.
-- of each: ?1 id
DELETE FROM {schema}`{table}`
WHERE id IN ({each,:?1})
