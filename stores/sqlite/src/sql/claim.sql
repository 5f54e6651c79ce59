-- Claims a key that has no record, or whose record has expired.
-- Guard: a completed record past its ttl, or one in flight under "retry" past its ttl and its
-- lease.
-- ?1 id, ?2 fingerprint, ?3 owner, ?4 lease in ms, ?5 ttl in ms, ?6 abandoned policy (0 retry, 1
-- hold), ?7 operation, ?8 principal or empty
INSERT INTO main."{table}" AS r
    (id, state, fingerprint, owner, attempt, abandoned, lease, lease_until, first_seen, expires_at,
     operation, principal, history, watch)
SELECT ?1, 1, ?2, ?3, 1, ?6, ?4, clock.now + ?4, clock.now, clock.now + ?5, ?7, nullif(?8, x''),
       'c' || printf('%011x', clock.now), CASE ?6 WHEN 1 THEN clock.now END
FROM (SELECT {now} AS now) AS clock
WHERE true
ON CONFLICT (id) DO UPDATE SET
    state       = excluded.state,
    fingerprint = excluded.fingerprint,
    owner       = excluded.owner,
    attempt     = excluded.attempt,
    abandoned   = excluded.abandoned,
    lease       = excluded.lease,
    lease_until = excluded.lease_until,
    first_seen  = excluded.first_seen,
    expires_at  = excluded.expires_at,
    recording   = NULL,
    operation   = excluded.operation,
    principal   = excluded.principal,
    completed_at = NULL,
    status      = NULL,
    reference   = NULL,
    progress    = NULL,
    steps       = NULL,
    input       = NULL,
    history     = excluded.history,
    watch       = excluded.watch
WHERE r.expires_at <= excluded.first_seen
  AND (r.state = 2 OR (r.state = 1 AND r.abandoned = 0 AND r.lease_until <= excluded.first_seen))
