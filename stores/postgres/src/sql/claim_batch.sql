-- claim.sql for many keys: claims those that have no record, and reads of each existing record what
-- a claim is decided from. Returns one row for each key, without a state if the claim is granted;
-- or no row if another process inserted a record after this statement began, or if a transaction
-- has the lock of the key.
-- Returns no recording that is large, nor one with which all that are returned would be too large
-- together: the claims of these keys are executed alone.
-- OFFSET 0 makes the planner look each record up by its id: the table grows while the plan stays.
-- $1 ids, $2 fingerprints, $3 owners, $4 leases in ms, $5 ttls in ms, $6 abandoned policies (0
-- retry, 1 hold), $7 operations in UTF-8, $8 principals or empty, $9 the records' parts of the
-- locks: arrays of equal length, no id twice; $10 the size from which on a recording is large,
-- $11 how large all recordings together may be
WITH seen AS MATERIALIZED (
    SELECT claim.*, clock.now, r.*
    FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
             AS claim (id, new_fingerprint, new_owner, new_lease, ttl, new_abandoned, operation,
                       principal, lock)
    CROSS JOIN (SELECT {now} AS now) AS clock
    LEFT JOIN LATERAL (
        SELECT r.state, r.fingerprint, r.owner, r.attempt, r.abandoned, r.lease, r.lease_until,
               r.first_seen, r.expires_at, r.recording, r.reference,
               CASE WHEN octet_length(r.recording) < $10
                   THEN octet_length(r.recording) END AS size
        FROM {schema}"{table}" AS r
        WHERE r.id = claim.id
        OFFSET 0
    ) AS r ON true
), granted AS (
    INSERT INTO {schema}"{table}"
        (id, state, fingerprint, owner, attempt, abandoned, lease, lease_until,
         first_seen, expires_at, operation, principal, history, watch)
    SELECT id, 1, new_fingerprint, new_owner, 1, new_abandoned, new_lease, now + new_lease, now,
           now + ttl, convert_from(operation, 'UTF8'), nullif(principal, ''::bytea),
           'c' || lpad(to_hex(now), 11, '0'), CASE new_abandoned WHEN 1 THEN now END
    FROM seen
    WHERE state IS NULL
      AND pg_try_advisory_xact_lock(lock # {locked_table})
    ON CONFLICT (id) DO NOTHING
    RETURNING id, first_seen
)
SELECT id, now, state::bigint, fingerprint, owner, attempt, abandoned::bigint, lease, lease_until,
       first_seen, expires_at,
       CASE WHEN size IS NOT NULL
             AND sum(size) OVER (ROWS UNBOUNDED PRECEDING) <= $11
           THEN recording END AS recording,
       reference
FROM seen
WHERE state IS NOT NULL
UNION ALL
SELECT id, first_seen, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM granted
