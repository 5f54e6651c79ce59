-- Ends a claim without a response: the key becomes held, or its lease expires at once.
-- Guard: the record is in flight and owned by the caller.
-- ?1 id, ?2 owner, ?3 abandoned policy (0 retry, 1 hold)
UPDATE {schema}`{table}`
SET lease_until = IF(abandoned = 1 OR ?3 = 1, lease_until, 0),
    watch = IF(abandoned = 1 OR ?3 = 1, first_seen, watch),
    history = IF(abandoned = 1 OR ?3 = 1, {appended:'h'}, {appended:'a'}),
    state = IF(abandoned = 1 OR ?3 = 1, 3, 1)
WHERE id = ?1
  AND owner = ?2
  AND state = 1
