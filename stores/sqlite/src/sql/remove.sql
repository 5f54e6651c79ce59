-- Deletes a record for an operator.
-- Guard: the owner that was read; completed, or expired, unless it may be in any state.
-- Returns the state of the record, for the log.
-- ?1 id, ?2 owner that was read, ?3 1 if it may be held or in flight
DELETE FROM main."{table}"
WHERE id = ?1
  AND owner = ?2
  AND (?3 = 1
       OR state = 2
       OR (state = 1 AND abandoned = 0 AND lease_until <= {now} AND expires_at <= {now}))
RETURNING CASE WHEN state = 2 THEN 'completed' || coalesce(' ' || status, '')
               WHEN state = 3 OR (abandoned = 1 AND lease_until <= {now}) THEN 'held'
               ELSE 'in flight' END AS before
