-- Marks records past their ttl that are held or can become held: a purge then reads them no more.
-- A completion takes the mark back. Skips records that another session has locked. Returns one row
-- with their number.
-- $1 maximum number of records
WITH held AS MATERIALIZED (
    SELECT id
    FROM {schema}"{table}"
    WHERE kept = 0 -- as in purge.sql
      AND expires_at <= (SELECT {now})
      AND (state = 3 OR (state = 1 AND abandoned = 1))
    ORDER BY expires_at -- so that it reads the index, which loses the marked records
    LIMIT $1
    FOR NO KEY UPDATE SKIP LOCKED
), marked AS (
    UPDATE {schema}"{table}" AS r
    SET kept = 1
    FROM held
    WHERE r.id = held.id
    RETURNING 1
)
SELECT count(*) AS changed FROM marked
