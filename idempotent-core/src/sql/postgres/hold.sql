-- Holds a key whose lease is over, when its record or the new claim wants it held.
-- $1 id, $2 fingerprint, $3 the owner that was seen
UPDATE {schema}"{table}"
SET state = 3
WHERE id = $1
  AND state = 1
  AND owner = $3
  AND fingerprint = $2
  AND lease_until <= {now}
  AND (abandoned = 1 OR expires_at > {now}){bounded}
RETURNING 1
