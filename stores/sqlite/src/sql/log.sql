-- Adds an entry to the log of operators' decisions.
-- ?1 action, ?2 id of the record, ?3 operation, ?4 principal or empty, ?5 reference or empty, ?6
-- state before, ?7 state after, ?8 actor, ?9 reason
INSERT INTO main."{table}_audit"
    (at, action, record_id, operation, principal, reference, before, after, actor, reason)
VALUES ({now}, ?1, ?2, ?3, nullif(?4, x''), nullif(?5, ''), ?6, ?7, ?8, ?9)
