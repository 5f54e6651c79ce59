-- Limits the leases, as shorten.sql does, of records that this transaction has locked.
-- of each: ?1 id
UPDATE {schema}`{table}`
SET lease_until = {now} + lease
WHERE id IN ({each,:?1})
  AND lease_until > {now} + lease
