-- Changes a record and, if it was changed, adds an entry to the log of operators' decisions. The
-- parameters of the change follow those of the entry.
-- $1 action, $2 id of the record, $3 operation, $4 principal or empty, $5 reference or empty, $6
-- state before, $7 state after, $8 actor, $9 reason: texts in UTF-8
WITH changed AS (
{change}
)
INSERT INTO {schema}"{table}_audit"
    (at, action, record_id, operation, principal, reference, before, after, actor, reason)
SELECT {now}, convert_from($1, 'UTF8'), $2, convert_from($3, 'UTF8'), nullif($4, ''::bytea),
       nullif(convert_from($5, 'UTF8'), ''), convert_from($6, 'UTF8'), convert_from($7, 'UTF8'),
       convert_from($8, 'UTF8'), convert_from($9, 'UTF8')
FROM changed
RETURNING 1
