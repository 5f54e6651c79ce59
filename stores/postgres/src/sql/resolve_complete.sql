-- Completes a held key for an operator. The owner becomes all zeros, which fences a late owner.
-- Guard: the owner that was read; held, or in flight under "hold" with an expired lease.
-- Returns the state of the record, for the log.
-- $1 id, $2 owner that was read, $3 recording, $4 status or 0
UPDATE {schema}"{table}"
SET state = 2,
    kept = 0,
    owner = decode('00000000000000000000000000000000', 'hex'),
    recording = $3,
    expires_at =
        CASE WHEN expires_at <= {now} THEN {now} + expires_at - first_seen ELSE expires_at END,
    completed_at = {now},
    status = nullif($4, 0),
    progress = NULL,
    steps = NULL,
    input = NULL,
    history = {appended:'r'},
    watch = NULL
WHERE id = $1
  AND owner = $2
  AND (state = 3 OR (state = 1 AND abandoned = 1 AND lease_until <= {now})){bounded}
RETURNING 'held' AS before
