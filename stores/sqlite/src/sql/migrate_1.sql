-- Version 1: the records. Times are milliseconds since the Unix epoch. A list of three values in a
-- CHECK would make SQLite build a temporary table for each insert and update.
CREATE TABLE main."{table}" (
    id          BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 32),
    state       INTEGER NOT NULL CHECK (state BETWEEN 1 AND 3), -- in flight, completed, held
    fingerprint BLOB    NOT NULL CHECK (length(fingerprint) = 36),
    owner       BLOB    NOT NULL CHECK (length(owner) = 16),
    attempt     INTEGER NOT NULL CHECK (attempt BETWEEN 1 AND 4294967295),
    abandoned   INTEGER NOT NULL CHECK (abandoned IN (0, 1)), -- retry, hold
    lease       INTEGER NOT NULL, -- length in ms
    lease_until INTEGER NOT NULL, -- 0 once abandoned
    first_seen  INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    kept        INTEGER NOT NULL DEFAULT 0, -- 1: past its ttl and never purged, because it is held
    operation    TEXT   NOT NULL DEFAULT '',
    principal    BLOB, -- a digest
    completed_at INTEGER,
    status       INTEGER, -- of the recorded response
    history      TEXT   NOT NULL DEFAULT '',
    watch        INTEGER, -- first_seen if it is or can become held, or was renewed in flight
    reference    TEXT, -- this and the following: what the handler has noted
    progress     TEXT,
    steps        BLOB,
    input        BLOB,
    -- The largest column is the last one: SQLite reads through it to those that follow.
    recording    BLOB             CHECK ((recording IS NULL) = (state <> 2))
) STRICT;

-- For the purge; without held records past their ttl, which each purge would read in vain. The
-- lease has no index, because each renewal would have to update it.
CREATE INDEX main."{table}_expires_at" ON "{table}" (expires_at) WHERE kept = 0;

-- For resuming abandoned operations: those in flight that have noted their input.
CREATE INDEX main."{table}_input" ON "{table}" (id) WHERE input IS NOT NULL;

-- For operators: the records that may need somebody. No other record is in the index.
CREATE INDEX main."{table}_watch" ON "{table}" (watch, id)
WHERE watch IS NOT NULL;

-- The decisions of operators. They outlive the records, and a table of records that was dropped.
CREATE TABLE IF NOT EXISTS main."{table}_audit" (
    number    INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at        INTEGER NOT NULL,
    action    TEXT    NOT NULL,
    record_id BLOB    NOT NULL,
    operation TEXT    NOT NULL,
    before    TEXT    NOT NULL, -- the state of the record
    after     TEXT    NOT NULL,
    actor     TEXT    NOT NULL,
    reason    TEXT    NOT NULL
) STRICT;
