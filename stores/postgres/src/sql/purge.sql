-- Deletes expired records, oldest first; never a held one, one within its lease, or one that
-- another session has locked. Returns one row with their number.
-- $1 maximum number of records
WITH expired AS MATERIALIZED (
    SELECT id
    FROM {schema}"{table}"
    WHERE kept = 0 -- as in the index
      AND expires_at <= (SELECT {now}) -- a constant for the index scan, unlike the clock
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
SELECT count(*) AS changed FROM removed
