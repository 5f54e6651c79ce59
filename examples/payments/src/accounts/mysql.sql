-- Accounts and transfers. They are in the same database as the idempotency records, so that one
-- transaction can change both.
CREATE TABLE IF NOT EXISTS accounts (
    id       VARCHAR(64) NOT NULL PRIMARY KEY,
    balance  BIGINT      NOT NULL CHECK (balance >= 0)
) ENGINE = InnoDB;

INSERT IGNORE INTO accounts (id, balance)
VALUES ('alice', 100000), ('bob', 100000), ('carol', 100000), ('dave', 100000);

-- Ledger entries and receipts of payments, also without a unique constraint on purpose.
CREATE TABLE IF NOT EXISTS entries (
    payment      VARCHAR(64) NOT NULL,
    charge       VARCHAR(64) NOT NULL,
    amount       BIGINT      NOT NULL,
    currency     VARCHAR(16) NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS receipts (
    payment      VARCHAR(64) NOT NULL
) ENGINE = InnoDB;

-- `record` is the id of the record that was completed in the same commit; the record is purged
-- after its ttl. There is no unique constraint on purpose: only the record must prevent a second
-- transfer, and the tests check this table for one.
CREATE TABLE IF NOT EXISTS transfers (
    number       BIGINT      NOT NULL PRIMARY KEY AUTO_INCREMENT,
    id           VARCHAR(64) NOT NULL UNIQUE,
    owner        VARCHAR(64) NOT NULL,
    from_account VARCHAR(64) NOT NULL REFERENCES accounts (id),
    to_account   VARCHAR(64) NOT NULL REFERENCES accounts (id),
    amount       BIGINT      NOT NULL CHECK (amount > 0),
    record       BINARY(32)  REFERENCES idempotency_records (id) ON DELETE SET NULL
) ENGINE = InnoDB;
