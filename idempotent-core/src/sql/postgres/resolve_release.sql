-- Gives a held key back as an operator says.
-- $1 id, $2 the owner that was seen
DELETE FROM {schema}"{table}"
WHERE id = $1
  AND owner = $2
  AND (state = 3 OR (state = 1 AND abandoned = 1 AND lease_until <= {now})){bounded}
RETURNING 1
