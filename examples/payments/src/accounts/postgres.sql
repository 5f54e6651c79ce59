-- Accounts and transfers. They are in the database of the records, so that one transaction spans
-- both.
BEGIN ISOLATION LEVEL READ COMMITTED;
-- Two servers that start at once would create the same table.
SELECT pg_advisory_xact_lock(hashtext('payments: accounts'));
CREATE TABLE IF NOT EXISTS accounts (
    id       text   NOT NULL PRIMARY KEY,
    balance  bigint NOT NULL CHECK (balance >= 0)
);

INSERT INTO accounts (id, balance)
VALUES ('alice', 100000), ('bob', 100000), ('carol', 100000), ('dave', 100000)
ON CONFLICT (id) DO NOTHING;

-- `record` is the id of the record that was completed in the same commit; the record is purged
-- after its ttl. `record` is not unique on purpose: only the record prevents a second transfer, and
-- the tests look here for one.
CREATE TABLE IF NOT EXISTS transfers (
    number       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           text   NOT NULL UNIQUE,
    owner        text   NOT NULL,
    from_account text   NOT NULL REFERENCES accounts (id),
    to_account   text   NOT NULL REFERENCES accounts (id),
    amount       bigint NOT NULL CHECK (amount > 0),
    record       bytea           REFERENCES idempotency_records (id) ON DELETE SET NULL
);
CREATE INDEX IF NOT EXISTS transfers_of_record ON transfers (record);
COMMIT;
