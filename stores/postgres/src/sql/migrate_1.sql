-- Version 1: the records. Times are milliseconds since the Unix epoch on the server's clock, as
-- integers, so that the state machine and the statements round alike; `to_timestamp(expires_at /
-- 1000.0)` displays one. There are no CHECK constraints, which the server would parse for each
-- insert and update; the store validates what it reads.
CREATE TABLE {schema}"{table}" (
    id          bytea    NOT NULL PRIMARY KEY,
    fingerprint bytea    NOT NULL,
    owner       bytea    NOT NULL,
    attempt     bigint   NOT NULL,
    lease       bigint   NOT NULL, -- length in ms
    lease_until bigint   NOT NULL, -- 0 once abandoned
    first_seen  bigint   NOT NULL,
    expires_at  bigint   NOT NULL,
    state       smallint NOT NULL, -- 1 in flight, 2 completed, 3 held
    abandoned   smallint NOT NULL, -- 0 retry, 1 hold
    recording   bytea,
    kept        smallint NOT NULL DEFAULT 0, -- 1: past its ttl and never purged, because it is held
    operation    text    NOT NULL DEFAULT '',
    principal    bytea, -- a digest
    completed_at bigint,
    status       smallint, -- of the recorded response
    reference    text, -- this and the following: what the handler has noted
    progress     text,
    steps        bytea,
    input        bytea,
    history      text    NOT NULL DEFAULT '',
    watch        bigint -- first_seen if it is or can become held, or was renewed in flight
) {storage};

-- For the purge; without held records past their ttl, which each purge would read in vain. The
-- lease and the state have no index, because each renewal and each completion would have to update
-- it. The free part of each page holds new versions of its records.
CREATE INDEX "{table}_expires_at" ON {schema}"{table}" (expires_at) WHERE kept = 0;

-- For resuming abandoned operations: those in flight that have noted their input. No other
-- record is in the index, so their updates do not write it.
CREATE INDEX "{table}_input" ON {schema}"{table}" (id) WHERE input IS NOT NULL;

-- For operators: the records that may need somebody. No other record is in the index.
CREATE INDEX "{table}_watch" ON {schema}"{table}" (watch, id)
WHERE watch IS NOT NULL;

-- The decisions of operators. They outlive the records, and a table of records that was dropped.
CREATE TABLE IF NOT EXISTS {schema}"{table}_audit" (
    number    bigint NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        bigint NOT NULL,
    action    text   NOT NULL,
    record_id bytea  NOT NULL,
    operation text   NOT NULL,
    before    text   NOT NULL, -- the state of the record
    after     text   NOT NULL,
    actor     text   NOT NULL,
    reason    text   NOT NULL
);
