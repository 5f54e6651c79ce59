-- Marks records past their ttl that are held or can become held: a purge then reads them no more.
-- A completion takes the mark back.
-- ?1 maximum number of records
UPDATE main."{table}"
SET kept = 1
WHERE id IN (
    SELECT id
    FROM main."{table}"
    WHERE kept = 0 -- as in purge.sql
      AND expires_at <= {now}
      AND (state = 3 OR (state = 1 AND abandoned = 1))
    LIMIT ?1
)
