-- Keeps the answer. Where the owner's answer is there already, it stays. One that comes after the ttl is kept for as long again;
-- any other leaves expires_at as it is, so that the update stays within its page and writes no index (HOT).
-- $1 id, $2 owner, $3 recording
UPDATE {schema}"{table}"
SET state = 2,
    recording = CASE state WHEN 2 THEN recording ELSE $3 END,
    expires_at = CASE WHEN state <> 2 AND expires_at <= {now} THEN {now} + expires_at - first_seen ELSE expires_at END
WHERE id = $1
  AND owner = $2
  AND state IN (1, 2, 3){bounded}
RETURNING 1
