-- Replaces bytes of a record. A part that was empty is neither compared nor replaced.
-- Guard: the owner and the bytes that were read.
-- ?1 id, ?2 owner that was read, ?3 recording that was read, ?4 its replacement, ?5 steps that
-- were read, ?6 their replacement, ?7 input that was read, ?8 its replacement
UPDATE {schema}`{table}`
SET recording = IF(?3 = '', recording, ?4),
    steps = IF(?5 = '', steps, NULLIF(?6, '')),
    input = IF(?7 = '', input, NULLIF(?8, ''))
WHERE id = ?1
  AND owner = ?2
  AND (?3 = '' OR recording = ?3)
  AND (?5 = '' OR steps = ?5)
  AND (?7 = '' OR input = ?7)
