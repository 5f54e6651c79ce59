-- Takes over a key whose lease has expired, if its attempt is still the one that was read. The owner is not enough: if its claim is
-- sent again after others had the key, it has a later attempt.
-- $1 id, $2 fingerprint, $3 owner, $4 lease in ms, $5 the attempt that was seen
UPDATE {schema}"{table}"
SET owner = $3, attempt = least(attempt + 1, 4294967295), lease = $4, lease_until = {now} + $4
WHERE id = $1
  AND state = 1
  AND attempt = $5
  AND fingerprint = $2
  AND abandoned = 0
  AND lease_until <= {now}
  AND expires_at > {now}{bounded}
RETURNING 1
