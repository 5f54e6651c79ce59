-- What the accounts hold, and what moved between them. They are in the database of the records, so that one transaction spans both.
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS accounts (
    id       TEXT    NOT NULL PRIMARY KEY,
    balance  INTEGER NOT NULL CHECK (balance >= 0)
) STRICT;

INSERT INTO accounts (id, balance) VALUES ('alice', 100000), ('bob', 100000), ('carol', 100000), ('dave', 100000)
ON CONFLICT (id) DO NOTHING;

-- `record` is the record that was completed in the same commit; it is purged some time after its ttl, and the transfer stays. Nothing
-- here is unique to it: what keeps a transfer from being made twice is the record alone, and this is where one would see it fail.
CREATE TABLE IF NOT EXISTS transfers (
    number       INTEGER PRIMARY KEY,
    id           TEXT    NOT NULL UNIQUE,
    owner        TEXT   NOT NULL,
    from_account TEXT    NOT NULL REFERENCES accounts (id),
    to_account   TEXT    NOT NULL REFERENCES accounts (id),
    amount       INTEGER NOT NULL CHECK (amount > 0),
    record       BLOB             REFERENCES idempotency_records (id) ON DELETE SET NULL
) STRICT;
CREATE INDEX IF NOT EXISTS transfers_of_record ON transfers (record);
COMMIT;
