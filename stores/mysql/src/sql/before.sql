-- Locks a record for an operator's decision, and returns its state for the log. The change that
-- follows tests the owner. By itself it shows whether another transaction has locked the record.
-- ?1 id
SELECT CASE WHEN state = 2 THEN CONCAT('completed', COALESCE(CONCAT(' ', status), ''))
            WHEN state = 3 OR (abandoned = 1 AND lease_until <= {now}) THEN 'held'
            ELSE 'in flight' END AS `before`
FROM {schema}`{table}`
WHERE id = ?1
FOR UPDATE
