-- Gives a key back.
-- $1 id, $2 owner
DELETE FROM {schema}"{table}"
WHERE id = $1
  AND owner = $2
  AND state = 1{bounded}
RETURNING 1
