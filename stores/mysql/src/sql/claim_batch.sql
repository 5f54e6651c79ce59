-- claim.sql for many keys, no key twice: all are claimed, or none.
-- ?1 the time; of each: ?1 id, ?2 fingerprint, ?3 owner, ?4 lease in ms, ?5 ttl in ms, ?6 abandoned
-- policy (0 retry, 1 hold), ?7 operation, ?8 principal or empty
INSERT INTO {schema}`{table}`
    (id, state, fingerprint, owner, attempt, abandoned, lease, lease_until, first_seen, expires_at,
     operation, principal, history, watch)
VALUES {each,:(?1, 1, ?2, ?3, 1, ?6, ?4, {1} + ?4, {1}, {1} + ?5, ?7, NULLIF(?8, ''),
       CONCAT('c', LPAD(LOWER(HEX({1})), 11, '0')), IF(?6 = 1, {1}, NULL))}
