-- The same for every record whose ttl is over, for the purge; none that another session has locked.
WITH longer AS MATERIALIZED (
    SELECT id
    FROM {schema}"{table}"
    WHERE expires_at <= (SELECT {now}) -- as in the purge
      AND state = 1
      AND lease_until > {now} + lease
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {schema}"{table}" AS r
SET lease_until = {now} + r.lease
FROM longer
WHERE r.id = longer.id
