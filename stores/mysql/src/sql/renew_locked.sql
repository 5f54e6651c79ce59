-- Renews leases of records that this transaction has locked.
-- ?1 lease in ms; of each: ?1 id
UPDATE {schema}`{table}`
SET lease = ?1, lease_until = {now} + ?1, watch = first_seen
WHERE id IN ({each,:?1})
