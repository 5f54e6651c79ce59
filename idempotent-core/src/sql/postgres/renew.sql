-- Renews many leases. A row for each that was renewed.
-- $1 ids, $2 owners, $3 leases in ms: arrays of one length
UPDATE {schema}"{table}" AS r
SET lease_until = {now} + lease.ms
FROM unnest($1, $2, $3) AS lease (id, owner, ms)
WHERE r.id = lease.id
  AND r.owner = lease.owner
  AND r.state = 1
RETURNING r.id, r.owner
