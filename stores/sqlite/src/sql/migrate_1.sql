-- Version 1: the records. Times are milliseconds since the Unix epoch.
CREATE TABLE main."{table}" (
    id          BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 32),
    state       INTEGER NOT NULL CHECK (state IN (1, 2, 3)), -- in flight, completed, held
    fingerprint BLOB    NOT NULL CHECK (length(fingerprint) = 36),
    owner       BLOB    NOT NULL CHECK (length(owner) = 16),
    attempt     INTEGER NOT NULL CHECK (attempt BETWEEN 1 AND 4294967295),
    abandoned   INTEGER NOT NULL CHECK (abandoned IN (0, 1)), -- retry, hold
    lease       INTEGER NOT NULL, -- length in ms
    lease_until INTEGER NOT NULL, -- 0 once abandoned
    first_seen  INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    recording   BLOB             CHECK ((recording IS NULL) = (state <> 2)),
    kept        INTEGER NOT NULL DEFAULT 0, -- 1: past its ttl and never purged, because it is held
    operation    TEXT   NOT NULL DEFAULT '',
    principal    BLOB, -- a digest
    completed_at INTEGER,
    status       INTEGER, -- of the recorded response
    reference    TEXT, -- this and the following: what the handler has noted
    progress     TEXT,
    steps        BLOB,
    input        BLOB
) STRICT;

-- For the purge; without held records past their ttl, which each purge would read in vain. The
-- lease has no index, because each renewal would have to update it.
CREATE INDEX main."{table}_expires_at" ON "{table}" (expires_at) WHERE kept = 0;

-- For resuming abandoned operations: those in flight that have noted their input.
CREATE INDEX main."{table}_input" ON "{table}" (id) WHERE input IS NOT NULL;
