-- Ends a claim without a response: the key becomes held, or its lease expires at once.
-- Guard: the record is in flight and owned by the caller.
-- ?1 id, ?2 owner, ?3 abandoned policy (0 retry, 1 hold)
UPDATE main."{table}"
SET state = CASE WHEN abandoned = 1 OR ?3 = 1 THEN 3 ELSE 1 END,
    lease_until = CASE WHEN abandoned = 1 OR ?3 = 1 THEN lease_until ELSE 0 END,
    watch = CASE WHEN abandoned = 1 OR ?3 = 1 THEN first_seen ELSE watch END,
    history = CASE WHEN abandoned = 1 OR ?3 = 1 THEN {appended:'h'} ELSE {appended:'a'} END
WHERE id = ?1
  AND owner = ?2
  AND state = 1
