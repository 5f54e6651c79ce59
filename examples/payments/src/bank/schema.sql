-- The bank's transfers, one per key. `requests` counts the calls with the key.
CREATE TABLE IF NOT EXISTS bank_transfers (
    key            TEXT    NOT NULL PRIMARY KEY,
    id             TEXT    NOT NULL UNIQUE,
    kind           TEXT    NOT NULL,
    amount         INTEGER NOT NULL CHECK (amount > 0),
    currency       TEXT    NOT NULL,
    requests       INTEGER NOT NULL DEFAULT 1,
    created        INTEGER NOT NULL DEFAULT (unixepoch())
);
