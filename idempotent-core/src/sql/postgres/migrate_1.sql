-- Version 1: the records. Times are milliseconds since the Unix epoch, on the server's clock: whole numbers, so that the state
-- machine and the statements round alike (`to_timestamp(expires_at / 1000.0)` shows one).
CREATE TABLE {schema}"{table}" (
    id          bytea    NOT NULL PRIMARY KEY CHECK (octet_length(id) = 32),
    fingerprint bytea    NOT NULL CHECK (octet_length(fingerprint) = 36),
    owner       bytea    NOT NULL CHECK (octet_length(owner) = 16),
    attempt     bigint   NOT NULL CHECK (attempt BETWEEN 1 AND 4294967295),
    lease_until bigint   NOT NULL,
    first_seen  bigint   NOT NULL,
    expires_at  bigint   NOT NULL,
    state       smallint NOT NULL CHECK (state IN (1, 2, 3)), -- in flight, completed, held
    abandoned   smallint NOT NULL CHECK (abandoned IN (0, 1)), -- retry, hold
    recording   bytea             CHECK ((recording IS NULL) = (state <> 2))
) {storage};

-- For the purge. The lease has no index: each renewal would write it. The rest of a page is for the new versions of its records.
CREATE INDEX "{table}_expires_at" ON {schema}"{table}" (expires_at);
