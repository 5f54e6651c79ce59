-- Ends a lease no later than it would if it began now: only a clock that was set back lets it last longer.
-- $1 id, $2 the owner that was seen
UPDATE {schema}"{table}"
SET lease_until = {now} + lease
WHERE id = $1
  AND owner = $2
  AND state = 1
  AND lease_until > {now} + lease{bounded}
RETURNING 1
