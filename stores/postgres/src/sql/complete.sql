-- Stores the recording and completes the claim. The recording of a completed record stays, so the
-- owner can send the statement again. An update stays within its page and writes no index (HOT),
-- unless the completion comes after the ttl, which moves expires_at, or the record was watched. Of
-- the handler's notes only the reference stays.
-- Guard: the record is owned by the caller. The lease is not tested.
-- $1 id, $2 owner, $3 recording, $4 status or 0
UPDATE {schema}"{table}"
SET state = 2,
    kept = 0,
    recording = CASE state WHEN 2 THEN recording ELSE $3 END,
    expires_at = CASE WHEN state <> 2 AND expires_at <= {now} THEN {now} + expires_at - first_seen
        ELSE expires_at END,
    completed_at = CASE state WHEN 2 THEN completed_at ELSE {now} END,
    status = CASE state WHEN 2 THEN status ELSE nullif($4, 0) END,
    progress = NULL,
    steps = NULL,
    input = NULL,
    history = CASE state WHEN 2 THEN history ELSE {appended:'d'} END,
    watch = NULL
WHERE id = $1
  AND owner = $2
  AND state BETWEEN 1 AND 3{bounded}
RETURNING 1
