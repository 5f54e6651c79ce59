-- Adds an entry to the log of operators' decisions.
-- ?1 action, ?2 id of the record, ?3 operation, ?4 state after, ?5 actor, ?6 reason and ?7 state
-- before
INSERT INTO {schema}`{table}_audit`
    (at, action, record_id, operation, `before`, after, actor, reason)
VALUES ({now}, ?1, ?2, ?3, ?7, ?4, ?5, ?6)
