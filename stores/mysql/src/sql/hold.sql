-- Holds a key whose lease has expired, if its record or the new claim has the policy "hold".
-- Guard: in flight, the owner that was read, the same fingerprint, lease expired.
-- ?1 id, ?2 fingerprint, ?3 owner that was read, ?4 abandoned policy of the claim (0 retry, 1
-- hold)
UPDATE {schema}`{table}`
SET state = 3, watch = first_seen, history = {appended:'h'}
WHERE id = ?1
  AND state = 1
  AND owner = ?3
  AND fingerprint = ?2
  AND lease_until <= {now}
  AND (abandoned = 1 OR (?4 = 1 AND expires_at > {now}))
