-- Inserts the record of a claim in a transaction that has locked the key and has read no record.
-- Needed before the handler's notes, which change a record. The policy is "hold".
-- Returns no row if another process has inserted a record since.
-- $1 id, $2 fingerprint, $3 owner, $4 lease in ms, $5 ttl in ms, $6 operation in UTF-8, $7
-- principal or empty, $8 time of the claim
INSERT INTO {schema}"{table}"
    (id, state, fingerprint, owner, attempt, abandoned, lease, lease_until, first_seen, expires_at,
     operation, principal, history, watch)
SELECT $1, 1, $2, $3, 1, 1, $4, clock.at + $4, clock.at, clock.at + $5, convert_from($6, 'UTF8'),
       nullif($7, ''::bytea), 'c' || lpad(to_hex(clock.at), 11, '0'), clock.at
FROM (SELECT $8 AS at) AS clock
WHERE true{bounded}
ON CONFLICT (id) DO NOTHING
RETURNING 1
