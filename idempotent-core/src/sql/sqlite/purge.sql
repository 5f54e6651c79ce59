-- Removes expired records, oldest first; never one that is held or within its lease.
-- ?1 how many at most
DELETE FROM main."{table}"
WHERE id IN (
    SELECT id
    FROM main."{table}"
    WHERE expires_at <= {now}
      AND (state = 2 OR (state = 1 AND abandoned = 0 AND lease_until <= {now}))
    ORDER BY expires_at
    LIMIT ?1
)
