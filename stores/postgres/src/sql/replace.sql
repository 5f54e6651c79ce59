-- Replaces bytes of a record. A part that was empty is neither compared nor replaced.
-- Guard: the owner and the bytes that were read.
-- $1 id, $2 owner that was read, $3 recording that was read, $4 its replacement, $5 steps that
-- were read, $6 their replacement, $7 input that was read, $8 its replacement
UPDATE {schema}"{table}"
SET recording = CASE $3 WHEN ''::bytea THEN recording ELSE $4 END,
    steps = CASE $5 WHEN ''::bytea THEN steps ELSE nullif($6, ''::bytea) END,
    input = CASE $7 WHEN ''::bytea THEN input ELSE nullif($8, ''::bytea) END
WHERE id = $1
  AND owner = $2
  AND ($3 = ''::bytea OR recording = $3)
  AND ($5 = ''::bytea OR steps = $5)
  AND ($7 = ''::bytea OR input = $7){bounded}
RETURNING 1
