-- Limits the lease, as shorten.sql does, of every record whose ttl has expired. Skips records that
-- another session has locked.
-- Guard: in flight, lease longer than its length.
WITH longer AS MATERIALIZED (
    SELECT id
    FROM {schema}"{table}"
    WHERE expires_at <= (SELECT {now}) -- as in purge.sql
      AND state = 1
      AND lease_until > {now} + lease
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {schema}"{table}" AS r
SET lease_until = {now} + r.lease
FROM longer
WHERE r.id = longer.id
