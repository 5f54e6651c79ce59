-- Returns the records whose ids are in a range, without their recordings, steps and inputs.
-- ?1 first id, ?2 last id, ?3 maximum number of records
SELECT {now} AS now, id, state, fingerprint, owner, attempt, abandoned, lease, lease_until,
       first_seen, expires_at, operation, principal, completed_at, status, reference, progress,
       history
FROM {schema}`{table}`
WHERE id BETWEEN ?1 AND ?2
ORDER BY id
LIMIT ?3
