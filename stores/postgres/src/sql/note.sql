-- Adds a note of the handler to a claim. An empty value leaves its column as it is; the result of a
-- step is appended to those that are there.
-- Guard: the record is in flight and owned by the caller.
-- $1 id, $2 owner, $3 reference in UTF-8, $4 progress in UTF-8, $5 result of a step, $6 input, $7 1
-- to hold the key if the attempt is abandoned
UPDATE {schema}"{table}"
SET reference = coalesce(nullif(convert_from($3, 'UTF8'), ''), reference),
    progress = coalesce(nullif(convert_from($4, 'UTF8'), ''), progress),
    steps = CASE $5 WHEN ''::bytea THEN steps ELSE coalesce(steps, ''::bytea) || $5 END,
    input = coalesce(nullif($6, ''::bytea), input),
    abandoned = greatest(abandoned, $7),
    watch = CASE $7 WHEN 1 THEN first_seen ELSE watch END
WHERE id = $1
  AND owner = $2
  AND state = 1{bounded}
RETURNING 1
