-- Returns the ids of operations that can be resumed: abandoned, not held, and with their input.
-- ?1 maximum number of records
SELECT id
FROM main."{table}"
WHERE input IS NOT NULL -- as in the index
  AND state = 1
  AND abandoned = 0
  AND lease_until <= {now}
  AND expires_at > {now}
LIMIT ?1
