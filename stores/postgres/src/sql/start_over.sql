-- Claims a key whose record has expired.
-- Guard: the owner that was read; a completed record past its ttl, or one in flight under "retry"
-- past its ttl and its lease.
-- $1 id, $2 fingerprint, $3 owner, $4 lease in ms, $5 ttl in ms, $6 abandoned policy (0 retry, 1
-- hold), $7 operation in UTF-8, $8 principal or empty, $9 owner that was read
UPDATE {schema}"{table}" AS r
SET state       = 1,
    fingerprint = $2,
    owner       = $3,
    attempt     = 1,
    abandoned   = $6,
    lease       = $4,
    lease_until = clock.now + $4,
    first_seen  = clock.now,
    expires_at  = clock.now + $5,
    recording   = NULL,
    operation   = convert_from($7, 'UTF8'),
    principal   = nullif($8, ''::bytea),
    completed_at = NULL,
    status      = NULL,
    reference   = NULL,
    progress    = NULL,
    steps       = NULL,
    input       = NULL,
    history     = 'c' || lpad(to_hex(clock.now), 11, '0'),
    watch       = CASE $6 WHEN 1 THEN clock.now END
FROM (SELECT {now} AS now) AS clock
WHERE r.id = $1
  AND r.owner = $9
  AND r.expires_at <= clock.now
  AND (r.state = 2 OR (r.state = 1 AND r.abandoned = 0 AND r.lease_until <= clock.now)){bounded}
RETURNING 1
