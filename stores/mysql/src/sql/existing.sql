-- Reads what a claim is decided from, in any state. Returns one row: the time, and these columns
-- of the record or NULLs.
-- ?1 id
SELECT clock.now, r.state, r.fingerprint, r.owner, r.attempt, r.abandoned, r.lease, r.lease_until,
       r.first_seen, r.expires_at, r.recording, r.reference
FROM (SELECT {now} AS now) AS clock
LEFT JOIN {schema}`{table}` AS r ON r.id = ?1
