-- Claims a key that has no record, or reads of an existing record what a claim is decided from.
-- Returns one row, without a state if the claim is granted; or no row if another process inserted a
-- record after this statement began, in which case it has to be run again, or if a transaction has
-- the lock of the key.
-- A new key is granted only while no transaction has the lock of the key.
-- It neither locks nor writes an existing record, as an ON CONFLICT DO UPDATE would. It waits for
-- the uncommitted record of another transaction for as long as lock_timeout says.
-- $1 id, $2 fingerprint, $3 owner, $4 lease in ms, $5 ttl in ms, $6 abandoned policy (0 retry, 1
-- hold), $7 operation in UTF-8, $8 principal or empty, $9 the record's part of the lock
WITH seen AS MATERIALIZED (
    SELECT {now} AS now, r.state::bigint, r.fingerprint, r.owner, r.attempt, r.abandoned::bigint,
           r.lease, r.lease_until, r.first_seen, r.expires_at, r.recording, r.reference
    FROM {schema}"{table}" AS r
    WHERE r.id = $1
), granted AS (
    INSERT INTO {schema}"{table}"
        (id, state, fingerprint, owner, attempt, abandoned, lease, lease_until,
         first_seen, expires_at, operation, principal, history, watch)
    SELECT $1, 1, $2, $3, 1, $6, $4, clock.now + $4, clock.now, clock.now + $5,
           convert_from($7, 'UTF8'), nullif($8, ''::bytea),
           'c' || lpad(to_hex(clock.now), 11, '0'), CASE $6 WHEN 1 THEN clock.now END
    FROM (SELECT {now} AS now) AS clock
    WHERE NOT EXISTS (SELECT FROM seen)
      AND pg_try_advisory_xact_lock($9 # {locked_table}){bounded}
    ON CONFLICT (id) DO NOTHING
    RETURNING first_seen
)
SELECT * FROM seen
UNION ALL
SELECT first_seen, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM granted
