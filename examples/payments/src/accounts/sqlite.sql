-- Accounts and transfers. They are in the same database as the idempotency records, so that one
-- transaction can change both.
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS accounts (
    id       TEXT    NOT NULL PRIMARY KEY,
    balance  INTEGER NOT NULL CHECK (balance >= 0)
) STRICT;

INSERT INTO accounts (id, balance)
VALUES ('alice', 100000), ('bob', 100000), ('carol', 100000), ('dave', 100000)
ON CONFLICT (id) DO NOTHING;

-- Ledger entries and receipts of payments, also without a unique constraint on purpose.
CREATE TABLE IF NOT EXISTS entries (
    payment      TEXT   NOT NULL,
    charge       TEXT   NOT NULL,
    amount       INTEGER NOT NULL,
    currency     TEXT   NOT NULL
);
CREATE TABLE IF NOT EXISTS receipts (
    payment      TEXT   NOT NULL
);

-- `record` is the id of the record that was completed in the same commit; the record is purged
-- after its ttl. There is no unique constraint on purpose: only the record must prevent a second
-- transfer, and the tests check this table for one.
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
