-- complete.sql for many records. Returns the id and the owner of each record that was completed.
-- Guard: the record is owned by the caller. The lease is not tested.
-- $1 ids, $2 owners, $3 recordings, $4 statuses or 0: arrays of equal length
UPDATE {schema}"{table}" AS r
SET state = 2,
    kept = 0,
    recording = CASE r.state WHEN 2 THEN r.recording ELSE done.recording END,
    expires_at = CASE WHEN r.state <> 2 AND r.expires_at <= {now}
        THEN {now} + r.expires_at - r.first_seen ELSE r.expires_at END,
    completed_at = CASE r.state WHEN 2 THEN r.completed_at ELSE {now} END,
    status = CASE r.state WHEN 2 THEN r.status ELSE nullif(done.status, 0) END,
    progress = NULL,
    steps = NULL,
    input = NULL,
    history = CASE r.state WHEN 2 THEN r.history ELSE {appended:'d'} END,
    watch = NULL
FROM unnest($1, $2, $3, $4) AS done (id, owner, recording, status)
WHERE r.id = done.id
  AND r.owner = done.owner
  AND r.state IN (1, 2, 3)
RETURNING r.id, r.owner
