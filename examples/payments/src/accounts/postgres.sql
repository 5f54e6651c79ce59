-- Accounts and transfers. They are in the same database as the idempotency records, so that one
-- transaction can change both.
BEGIN ISOLATION LEVEL READ COMMITTED;
-- Serializes servers that start concurrently, which would otherwise create the same table.
SELECT pg_advisory_xact_lock(hashtext('payments: accounts'));
CREATE TABLE IF NOT EXISTS accounts (
    id       text   NOT NULL PRIMARY KEY,
    balance  bigint NOT NULL CHECK (balance >= 0)
);

INSERT INTO accounts (id, balance)
VALUES ('alice', 100000), ('bob', 100000), ('carol', 100000), ('dave', 100000)
ON CONFLICT (id) DO NOTHING;

-- Ledger entries and receipts of payments, also without a unique constraint on purpose.
CREATE TABLE IF NOT EXISTS entries (
    payment      text   NOT NULL,
    charge       text   NOT NULL,
    amount       bigint NOT NULL,
    currency     text   NOT NULL
);
CREATE TABLE IF NOT EXISTS receipts (
    payment      text   NOT NULL
);

-- `record` is the id of the record that was completed in the same commit; the record is purged
-- after its ttl. The transaction inserts it after the transfer, so the reference is checked on
-- commit. There is no unique constraint on purpose: only the record must prevent a second transfer,
-- and the tests check this table for one.
CREATE TABLE IF NOT EXISTS transfers (
    number       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           text   NOT NULL UNIQUE,
    owner        text   NOT NULL,
    from_account text   NOT NULL REFERENCES accounts (id),
    to_account   text   NOT NULL REFERENCES accounts (id),
    amount       bigint NOT NULL CHECK (amount > 0),
    record       bytea           REFERENCES idempotency_records (id) ON DELETE SET NULL
                                 DEFERRABLE INITIALLY DEFERRED
);
CREATE INDEX IF NOT EXISTS transfers_of_record ON transfers (record);
COMMIT;
