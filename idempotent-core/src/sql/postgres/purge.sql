-- Removes expired records, oldest first; never one that is held or within its lease, and none that another purge is at. One row:
-- how many.
-- $1 how many at most
WITH expired AS MATERIALIZED (
    SELECT id
    FROM {schema}"{table}"
    WHERE expires_at <= (SELECT {now}) -- a subquery is a constant to the index; the clock itself is not
      AND (state = 2 OR (state = 1 AND abandoned = 0 AND lease_until <= {now}))
    ORDER BY expires_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), removed AS (
    DELETE FROM {schema}"{table}" AS r
    USING expired
    WHERE r.id = expired.id
    RETURNING 1
)
SELECT count(*) AS removed FROM removed
