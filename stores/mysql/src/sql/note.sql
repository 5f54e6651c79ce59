-- Adds a note of the handler to a claim. An empty value leaves its column as it is; the result of a
-- step is appended to those that are there.
-- Guard: the record is in flight and owned by the caller.
-- ?1 id, ?2 owner, ?3 reference, ?4 progress, ?5 result of a step, ?6 input, ?7 1 to hold the key
-- if the attempt is abandoned
UPDATE {schema}`{table}`
SET reference = COALESCE(NULLIF(?3, ''), reference),
    progress = COALESCE(NULLIF(?4, ''), progress),
    steps = IF(?5 = '', steps, CONCAT(COALESCE(steps, ''), ?5)),
    input = COALESCE(NULLIF(?6, ''), input),
    abandoned = GREATEST(abandoned, ?7),
    watch = IF(?7 = 1 OR ?6 <> '', first_seen, watch)
WHERE id = ?1
  AND owner = ?2
  AND state = 1
