-- Adds an entry to the log of operators' decisions.
-- ?1 action, ?2 id of the record, ?3 operation, ?4 principal or empty, ?5 state after, ?6 actor, ?7
-- reason, ?8 reference or empty and ?9 state of the record before; an erasure logs no reference
INSERT INTO main."{table}_audit"
    (at, action, record_id, operation, principal, reference, before, after, actor, reason)
VALUES ({now}, ?1, ?2, ?3, nullif(?4, x''),
        CASE ?1 WHEN 'erase' THEN NULL ELSE nullif(?8, '') END, ?9, ?5, ?6, ?7)
