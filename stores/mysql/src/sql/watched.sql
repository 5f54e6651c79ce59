-- Returns the records that may need somebody, without their recordings, steps and inputs. In the
-- order of their first claims, so that pages can follow one another. Returns a row for each, or one
-- with the time and NULLs.
-- ?1 time of the first claim before the first one, ?2 its id or empty, ?3 maximum number of
-- records
SELECT clock.now, r.*
FROM (SELECT {now} AS now) AS clock
LEFT JOIN (
    SELECT id, state, fingerprint, owner, attempt, abandoned, lease, lease_until, first_seen,
           expires_at, operation, principal, completed_at, status, reference, progress, history,
           watch
    FROM {schema}`{table}`
    WHERE watch >= ?1
      AND (watch > ?1 OR id > ?2)
    ORDER BY watch, id
    LIMIT ?3
) AS r ON true
ORDER BY r.watch, r.id
