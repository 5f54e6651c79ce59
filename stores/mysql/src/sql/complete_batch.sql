-- complete.sql for many records, none twice.
-- Guard: the record is owned by the caller. The lease is not tested.
-- of each: ?1 id, ?2 owner, ?3 recording, ?4 status or 0
UPDATE {schema}`{table}`
SET kept = 0,
    recording = IF(state = 2, recording, CASE id {each :WHEN ?1 THEN ?3} END),
    completed_at = IF(state = 2, completed_at, {now}),
    status = IF(state = 2, status, NULLIF(CASE id {each :WHEN ?1 THEN ?4} END, 0)),
    progress = NULL,
    steps = NULL,
    input = NULL,
    history = IF(state = 2, history, {appended:'d'}),
    watch = NULL,
    expires_at =
        IF(state <> 2 AND expires_at <= {now}, {now} + expires_at - first_seen, expires_at),
    state = 2
WHERE id IN ({each,:?1})
  AND owner = CASE id {each :WHEN ?1 THEN ?2} END
  AND state IN (1, 2, 3)
