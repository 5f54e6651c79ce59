-- Stores the recording and completes the claim. The recording of a completed record stays, so the
-- owner can send the statement again. Of the handler's notes only the reference stays.
-- An assignment sees the values that were assigned before it: `state` and `expires_at` come last.
-- Guard: the record is owned by the caller. The lease is not tested.
-- ?1 id, ?2 owner, ?3 recording, ?4 status or 0
UPDATE {schema}`{table}`
SET kept = 0,
    recording = IF(state = 2, recording, ?3),
    completed_at = IF(state = 2, completed_at, {now}),
    status = IF(state = 2, status, NULLIF(?4, 0)),
    progress = NULL,
    steps = NULL,
    input = NULL,
    history = IF(state = 2, history, {appended:'d'}),
    watch = NULL,
    expires_at =
        IF(state <> 2 AND expires_at <= {now}, {now} + expires_at - first_seen, expires_at),
    state = 2
WHERE id = ?1
  AND owner = ?2
  AND state BETWEEN 1 AND 3
