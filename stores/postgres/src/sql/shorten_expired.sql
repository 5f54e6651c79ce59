-- Limits the lease, as shorten.sql does, of every record with the policy "retry" whose ttl has
-- expired. Skips records that another session has locked.
-- Guard: in flight, policy "retry", lease longer than its length.
WITH longer AS MATERIALIZED (
    SELECT id
    FROM {schema}"{table}"
    WHERE kept = 0 -- as in purge.sql
      AND expires_at <= (SELECT {now})
      AND state = 1
      AND abandoned = 0
      AND lease_until > {now} + lease
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {schema}"{table}" AS r
SET lease_until = {now} + r.lease
FROM longer
WHERE r.id = longer.id
