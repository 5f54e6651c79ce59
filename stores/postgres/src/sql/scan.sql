-- Reads a number of records in the order of their ids. Returns those that a list may have, without
-- their recordings, steps and inputs, and in any case the last one; or one row with the time and
-- NULLs. `read` is how many were read.
-- $1 id before the first one, or empty, $2 maximum number of records to read, $3 operation in
-- UTF-8, $4 principals one after the other, $5 reference in UTF-8: each empty for any
WITH part AS MATERIALIZED (
    SELECT id, state::bigint, fingerprint, owner, attempt, abandoned::bigint, lease, lease_until,
           first_seen, expires_at, operation, principal, completed_at, status::bigint, reference,
           progress, history
    FROM {schema}"{table}"
    WHERE id > $1
    ORDER BY id
    LIMIT $2
)
SELECT clock.now, clock.read, r.*
FROM (
    SELECT {now} AS now, (SELECT count(*) FROM part) AS read,
           (SELECT id FROM part ORDER BY id DESC LIMIT 1) AS last
) AS clock
LEFT JOIN part AS r ON r.id = clock.last OR (
    ($3 = ''::bytea OR r.operation = convert_from($3, 'UTF8'))
    AND ($4 = ''::bytea OR position(r.principal IN $4) > 0)
    AND ($5 = ''::bytea OR r.reference = convert_from($5, 'UTF8'))
)
ORDER BY r.id
