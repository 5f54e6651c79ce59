-- Version 1: the records. Times are milliseconds since the Unix epoch. The server commits each
-- statement by itself, so that a migration that was interrupted is executed again.
CREATE TABLE IF NOT EXISTS {schema}`{table}` (
    id           BINARY(32)     NOT NULL PRIMARY KEY,
    state        TINYINT        NOT NULL CHECK (state IN (1, 2, 3)), -- in flight, completed, held
    fingerprint  VARBINARY(36)  NOT NULL,
    owner        BINARY(16)     NOT NULL,
    attempt      BIGINT         NOT NULL CHECK (attempt BETWEEN 1 AND 4294967295),
    abandoned    TINYINT        NOT NULL CHECK (abandoned IN (0, 1)), -- retry, hold
    lease        BIGINT         NOT NULL, -- length in ms
    lease_until  BIGINT         NOT NULL, -- 0 once abandoned
    first_seen   BIGINT         NOT NULL,
    expires_at   BIGINT         NOT NULL,
    kept         TINYINT        NOT NULL DEFAULT 0, -- 1: past its ttl and never purged: it is held
    operation    VARCHAR(255)   NOT NULL DEFAULT '',
    principal    BINARY(16), -- a digest
    completed_at BIGINT,
    status       SMALLINT, -- of the recorded response
    history      VARCHAR(192)   NOT NULL DEFAULT '',
    watch        BIGINT, -- first_seen if it is or can become held, was renewed, or has an input
    reference    VARCHAR(255), -- this and the following: what the handler has noted
    progress     VARCHAR(255),
    steps        LONGBLOB,
    input        LONGBLOB,
    recording    LONGBLOB,
    -- Held records past their ttl, which each purge would read in vain, are apart from all others.
    -- The lease has no index, because each renewal would have to update it.
    KEY expires (kept, expires_at),
    -- For operators, and for resuming abandoned operations.
    KEY watched (watch, id),
    CHECK ((recording IS NULL) = (state <> 2))
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The decisions of operators. They outlive the records, and a table of records that was dropped.
CREATE TABLE IF NOT EXISTS {schema}`{table}_audit` (
    number    BIGINT       NOT NULL PRIMARY KEY AUTO_INCREMENT,
    at        BIGINT       NOT NULL,
    action    VARCHAR(32)  NOT NULL,
    record_id BINARY(32)   NOT NULL,
    operation VARCHAR(255) NOT NULL,
    `before`  VARCHAR(64)  NOT NULL, -- the state of the record
    after     VARCHAR(64)  NOT NULL,
    actor     VARCHAR(255) NOT NULL,
    reason    VARCHAR(255) NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin
