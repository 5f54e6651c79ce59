-- existing.sql for many keys. Returns a row for each record, without a recording that is large.
-- ?1 the size from which on a recording is large; of each: ?1 id
SELECT {now} AS now, id, state, fingerprint, owner, attempt, abandoned, lease, lease_until,
       first_seen, expires_at, IF(LENGTH(recording) < ?1, recording, NULL) AS recording, reference
FROM {schema}`{table}`
WHERE id IN ({each,:?1})
