-- Reads a number of records in the order of their ids. Returns those that a list may have, without
-- their recordings, steps and inputs, and in any case the last one; or one row with the time and
-- NULLs. `read` is how many were read.
-- ?1 id before the first one, or empty, ?2 maximum number of records to read, ?3 operation, ?4
-- principals one after the other, ?5 reference: each empty for any
WITH part AS (
    SELECT id, state, fingerprint, owner, attempt, abandoned, lease, lease_until, first_seen,
           expires_at, operation, principal, completed_at, status, reference, progress, history
    FROM {schema}`{table}`
    WHERE id > ?1
    ORDER BY id
    LIMIT ?2
)
SELECT clock.now, clock.`read`, r.*
FROM (
    SELECT {now} AS now, (SELECT COUNT(*) FROM part) AS `read`,
           (SELECT id FROM part ORDER BY id DESC LIMIT 1) AS last
) AS clock
LEFT JOIN part AS r ON r.id = clock.last OR (
    (?3 = '' OR r.operation = ?3)
    AND (?4 = '' OR INSTR(?4, r.principal) > 0)
    AND (?5 = '' OR r.reference = ?5)
)
ORDER BY r.id
