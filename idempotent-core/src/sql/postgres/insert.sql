-- Claims a key that has no record, within a transaction that has just begun. A record that is there is a violation of uniqueness; one that
-- another transaction has not committed yet is waited for.
-- $1 id, $2 fingerprint, $3 owner, $4 lease in ms, $5 ttl in ms, $6 abandoned
INSERT INTO {schema}"{table}"
    (id, state, fingerprint, owner, attempt, abandoned, lease, lease_until, first_seen, expires_at)
VALUES ($1, 1, $2, $3, 1, $6, $4, {begun} + $4, {begun}, {begun} + $5)
