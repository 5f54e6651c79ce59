-- Takes over a key whose lease has expired. The guard compares the attempt rather than the owner: a
-- claim that is sent again after others had the key has a later attempt with the same owner.
-- Guard: in flight, the attempt that was read, another owner, the same fingerprint, policy "retry",
-- lease expired, ttl not expired.
-- ?1 id, ?2 fingerprint, ?3 owner, ?4 lease in ms, ?5 attempt that was read
UPDATE {schema}`{table}`
SET owner = ?3, attempt = LEAST(attempt + 1, 4294967295), lease = ?4, lease_until = {now} + ?4,
    history = {appended:'t'}
WHERE id = ?1
  AND state = 1
  AND attempt = ?5
  AND owner <> ?3
  AND fingerprint = ?2
  AND abandoned = 0
  AND lease_until <= {now}
  AND expires_at > {now}
