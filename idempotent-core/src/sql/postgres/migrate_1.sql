-- Version 1: the records. Times are milliseconds since the Unix epoch, on the server's clock: whole numbers, so that the state
-- machine and the statements round alike (`to_timestamp(expires_at / 1000.0)` shows one). There are no CHECKs: the server would read their
-- text anew for each insert and each update, which takes it longer than the rest; what is read is checked by whoever reads it.
CREATE TABLE {schema}"{table}" (
    id          bytea    NOT NULL PRIMARY KEY,
    fingerprint bytea    NOT NULL,
    owner       bytea    NOT NULL,
    attempt     bigint   NOT NULL,
    lease       bigint   NOT NULL, -- its length
    lease_until bigint   NOT NULL, -- 0 once abandoned
    first_seen  bigint   NOT NULL,
    expires_at  bigint   NOT NULL,
    state       smallint NOT NULL, -- 1 in flight, 2 completed, 3 held
    abandoned   smallint NOT NULL, -- 0 retry, 1 hold
    recording   bytea
) {storage};

-- For the purge. The lease has no index: each renewal would write it. The rest of a page is for the new versions of its records.
CREATE INDEX "{table}_expires_at" ON {schema}"{table}" (expires_at);
