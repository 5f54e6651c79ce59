-- Returns the records that may need somebody, without their recordings, steps and inputs. In the
-- order of their first claims, so that pages can follow one another. Returns a row for each, or one
-- with the time and NULLs.
-- $1 time of the first claim before the first one, $2 its id or empty, $3 maximum number of
-- records
SELECT clock.now, r.*
FROM (SELECT {now} AS now) AS clock
LEFT JOIN (
    SELECT id, state::bigint, fingerprint, owner, attempt, abandoned::bigint, lease, lease_until,
           first_seen, expires_at, operation, principal, completed_at, status::bigint, reference,
           progress, history, watch
    FROM {schema}"{table}"
    WHERE watch IS NOT NULL -- as in the index
      AND (watch, id) > ($1, $2)
    ORDER BY watch, id
    LIMIT $3
) AS r ON true
ORDER BY r.watch, r.id
