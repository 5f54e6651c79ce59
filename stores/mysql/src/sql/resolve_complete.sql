-- Completes a held key for an operator. The owner becomes all zeros, which fences a late owner.
-- Guard: the owner that was read; held, or in flight under "hold" with an expired lease.
-- ?1 id, ?2 owner that was read, ?3 recording, ?4 status or 0
UPDATE {schema}`{table}`
SET kept = 0,
    owner = REPEAT(X'00', 16),
    recording = ?3,
    completed_at = {now},
    status = NULLIF(?4, 0),
    progress = NULL,
    steps = NULL,
    input = NULL,
    history = {appended:'r'},
    watch = NULL,
    expires_at = IF(expires_at <= {now}, {now} + expires_at - first_seen, expires_at),
    state = 2
WHERE id = ?1
  AND owner = ?2
  AND (state = 3 OR (state = 1 AND abandoned = 1 AND lease_until <= {now}))
