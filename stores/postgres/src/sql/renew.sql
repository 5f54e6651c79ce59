-- Renews many leases. Returns a row for each record in flight, with its owner; `renewed` is false
-- if another transaction has locked the record, which is not waited for. A lost lease has no row
-- with its owner.
-- Guard: the record is in flight and owned by the caller.
-- $1 ids, $2 owners, $3 leases in ms: arrays of equal length
WITH due AS MATERIALIZED (
    SELECT r.id, r.owner, lease.ms
    FROM unnest($1, $2, $3) AS lease (id, owner, ms)
    JOIN {schema}"{table}" AS r ON r.id = lease.id
    WHERE r.owner = lease.owner
      AND r.state = 1
    FOR NO KEY UPDATE OF r SKIP LOCKED
), renewed AS (
    UPDATE {schema}"{table}" AS r
    SET lease = due.ms, lease_until = {now} + due.ms, watch = r.first_seen
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
