-- Ends a claim without an outcome: held, or its lease is over at once.
-- ?1 id, ?2 owner, ?3 abandoned
UPDATE main."{table}"
SET state = CASE WHEN abandoned = 1 OR ?3 = 1 THEN 3 ELSE 1 END,
    lease_until = CASE WHEN abandoned = 1 OR ?3 = 1 THEN lease_until ELSE 0 END
WHERE id = ?1
  AND owner = ?2
  AND state = 1
