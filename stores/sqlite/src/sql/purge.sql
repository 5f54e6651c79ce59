-- Deletes expired records, oldest first; never a held one or one within its lease.
-- ?1 maximum number of records
DELETE FROM main."{table}"
WHERE id IN (
    SELECT id
    FROM main."{table}"
    WHERE kept = 0 -- as in the index
      AND expires_at <= {now}
      AND (state = 2 OR (state = 1 AND abandoned = 0 AND lease_until <= {now}))
    ORDER BY expires_at
    LIMIT ?1
)
