-- Renews many leases. A row for each record in flight, with its owner: one that another transaction has locked is not waited for, and so
-- not renewed. No row with the owner of a lease that was lost.
-- $1 ids, $2 owners, $3 leases in ms: arrays of one length
WITH due AS MATERIALIZED (
    SELECT r.id, r.owner, lease.ms
    FROM unnest($1, $2, $3) AS lease (id, owner, ms)
    JOIN {schema}"{table}" AS r ON r.id = lease.id
    WHERE r.owner = lease.owner
      AND r.state = 1
    FOR NO KEY UPDATE OF r SKIP LOCKED
), renewed AS (
    UPDATE {schema}"{table}" AS r
    SET lease = due.ms, lease_until = {now} + due.ms
    FROM due
    WHERE r.id = due.id
    RETURNING r.id, r.owner
)
SELECT id, owner, true AS renewed FROM renewed
UNION ALL
SELECT r.id, r.owner, false
FROM unnest($1) AS lease (id)
JOIN {schema}"{table}" AS r ON r.id = lease.id
WHERE r.state = 1
  AND NOT EXISTS (SELECT FROM renewed WHERE renewed.id = r.id)
