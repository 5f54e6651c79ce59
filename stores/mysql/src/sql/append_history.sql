-- Appends an entry to the history of a record.
-- ?1 id, ?2 letter of the entry
UPDATE {schema}`{table}`
SET history = {appended:?2}
WHERE id = ?1
