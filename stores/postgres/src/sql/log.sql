-- Changes a record and, if it was changed, adds an entry to the log of operators' decisions. The
-- change returns the state that the record had; its parameters follow those of the entry.
-- $1 action, $2 id of the record, $3 operation, $4 state after, $5 actor, $6 reason: texts in UTF-8
WITH changed AS (
{change}
)
INSERT INTO {schema}"{table}_audit"
    (at, action, record_id, operation, before, after, actor, reason)
SELECT {now}, convert_from($1, 'UTF8'), $2, convert_from($3, 'UTF8'), changed.before,
       convert_from($4, 'UTF8'), convert_from($5, 'UTF8'), convert_from($6, 'UTF8')
FROM changed
RETURNING 1
