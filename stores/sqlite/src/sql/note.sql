-- Adds a note of the handler to a claim. An empty value leaves its column as it is; the result of a
-- step is appended to those that are there.
-- Guard: the record is in flight and owned by the caller.
-- ?1 id, ?2 owner, ?3 reference, ?4 progress, ?5 result of a step, ?6 input, ?7 1 to hold the key
-- if the attempt is abandoned
UPDATE main."{table}"
SET reference = coalesce(nullif(?3, ''), reference),
    progress = coalesce(nullif(?4, ''), progress),
    steps = CASE ?5 WHEN x'' THEN steps ELSE CAST(coalesce(steps, x'') || ?5 AS BLOB) END,
    input = coalesce(nullif(?6, x''), input),
    abandoned = max(abandoned, ?7),
    watch = CASE ?7 WHEN 1 THEN first_seen ELSE watch END
WHERE id = ?1
  AND owner = ?2
  AND state = 1
