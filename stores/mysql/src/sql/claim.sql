-- Claims a key that has no record. It fails if the key has one, or if an open transaction has
-- inserted one.
-- ?1 id, ?2 fingerprint, ?3 owner, ?4 lease in ms, ?5 ttl in ms, ?6 abandoned policy (0 retry, 1
-- hold), ?7 operation, ?8 principal or empty
INSERT INTO {schema}`{table}`
    (id, state, fingerprint, owner, attempt, abandoned, lease, lease_until, first_seen, expires_at,
     operation, principal, history, watch)
SELECT ?1, 1, ?2, ?3, 1, ?6, ?4, clock.now + ?4, clock.now, clock.now + ?5, ?7, NULLIF(?8, ''),
       CONCAT('c', LPAD(LOWER(HEX(clock.now)), 11, '0')), IF(?6 = 1, clock.now, NULL)
FROM (SELECT {now} AS now) AS clock
