-- Inserts the completed record of a claim in a transaction that has locked the key and has read no
-- record, so that the record has a single version. A ttl that has expired starts anew.
-- Returns no row if another process has inserted a record since.
-- $1 id, $2 fingerprint, $3 owner, $4 lease in ms, $5 ttl in ms, $6 operation in UTF-8, $7
-- principal or empty, $8 time of the claim, $9 abandoned policy (0 retry, 1 hold), $10 recording,
-- $11 status or 0
INSERT INTO {schema}"{table}"
    (id, state, fingerprint, owner, attempt, abandoned, lease, lease_until, first_seen, expires_at,
     operation, principal, recording, completed_at, status, history)
SELECT $1, 2, $2, $3, 1, $9, $4, $8 + $4, $8,
       CASE WHEN $8 + $5 <= clock.now THEN clock.now + $5 ELSE $8 + $5 END,
       convert_from($6, 'UTF8'), nullif($7, ''::bytea), $10, clock.now, nullif($11, 0),
       'c' || lpad(to_hex($8), 11, '0') || 'd' || lpad(to_hex(clock.now), 11, '0')
FROM (SELECT {now} AS now) AS clock
WHERE true{bounded}
ON CONFLICT (id) DO NOTHING
RETURNING 1
