-- Marks records that are held, or will be with the next claim, and past their ttl: a purge then
-- reads them no more.
-- ?1 maximum number of records
UPDATE main."{table}"
SET kept = 1
WHERE id IN (
    SELECT id
    FROM main."{table}"
    WHERE kept = 0 -- as in purge.sql
      AND expires_at <= {now}
      AND (state = 3 OR (state = 1 AND abandoned = 1 AND lease_until <= {now}))
    LIMIT ?1
)
