-- Appends an entry to the history of a record.
-- $1 id, $2 letter of the entry in UTF-8
UPDATE {schema}"{table}"
SET history = {appended:convert_from($2, 'UTF8')}
WHERE id = $1{bounded}
RETURNING 1
