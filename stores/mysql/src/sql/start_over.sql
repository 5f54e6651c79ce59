-- Claims a key whose record has expired.
-- Guard: the owner that was read; a completed record past its ttl, or one in flight under "retry"
-- past its ttl and its lease.
-- ?1 id, ?2 fingerprint, ?3 owner, ?4 lease in ms, ?5 ttl in ms, ?6 abandoned policy (0 retry, 1
-- hold), ?7 operation, ?8 principal or empty, ?9 owner that was read
UPDATE {schema}`{table}` AS r
CROSS JOIN (SELECT {now} AS now) AS clock
SET r.state = 1,
    r.fingerprint = ?2,
    r.owner = ?3,
    r.attempt = 1,
    r.abandoned = ?6,
    r.lease = ?4,
    r.lease_until = clock.now + ?4,
    r.first_seen = clock.now,
    r.expires_at = clock.now + ?5,
    r.recording = NULL,
    r.operation = ?7,
    r.principal = NULLIF(?8, ''),
    r.completed_at = NULL,
    r.status = NULL,
    r.reference = NULL,
    r.progress = NULL,
    r.steps = NULL,
    r.input = NULL,
    r.history = CONCAT('c', LPAD(LOWER(HEX(clock.now)), 11, '0')),
    r.watch = IF(?6 = 1, clock.now, NULL)
WHERE r.id = ?1
  AND r.owner = ?9
  AND r.expires_at <= clock.now
  AND (r.state = 2 OR (r.state = 1 AND r.abandoned = 0 AND r.lease_until <= clock.now))
