-- Locks a record for an operator's decision, and returns its state for the log; no row if another
-- owner has it.
-- ?1 id, ?2 owner that was read
SELECT CASE WHEN state = 2 THEN CONCAT('completed', COALESCE(CONCAT(' ', status), ''))
            WHEN state = 3 OR (abandoned = 1 AND lease_until <= {now}) THEN 'held'
            ELSE 'in flight' END AS `before`
FROM {schema}`{table}`
WHERE id = ?1
  AND owner = ?2
FOR UPDATE
