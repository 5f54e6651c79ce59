-- Changes a record and, if it was changed, adds an entry to the log of operators' decisions. The
-- change returns the reference and the state that the record had; its parameters follow those of
-- the entry. The entry of an erasure has no reference.
-- $1 action, $2 id of the record, $3 operation, $4 principal or empty, $5 state after, $6 actor, $7
-- reason: texts in UTF-8
WITH changed AS (
{change}
)
INSERT INTO {schema}"{table}_audit"
    (at, action, record_id, operation, principal, reference, before, after, actor, reason)
SELECT {now}, convert_from($1, 'UTF8'), $2, convert_from($3, 'UTF8'), nullif($4, ''::bytea),
       CASE $1 WHEN 'erase'::bytea THEN NULL ELSE changed.reference END, changed.before,
       convert_from($5, 'UTF8'), convert_from($6, 'UTF8'), convert_from($7, 'UTF8')
FROM changed
RETURNING 1
