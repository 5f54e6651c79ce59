-- The requested payments. `charge_key` is the key of the call to the bank. It is derived from the
-- key of the request, so that a second attempt after a crash finds the row of the first, and
-- increments `attempts`.
CREATE TABLE IF NOT EXISTS payment_intents (
    number         INTEGER PRIMARY KEY,
    id             TEXT    NOT NULL UNIQUE,
    owner          TEXT    NOT NULL,
    charge_key     TEXT    NOT NULL UNIQUE,
    attempts       INTEGER NOT NULL DEFAULT 1,
    amount         INTEGER NOT NULL CHECK (amount > 0),
    currency       TEXT    NOT NULL,
    payment_method TEXT,
    description    TEXT,
    metadata       TEXT    NOT NULL,
    status         TEXT    NOT NULL,
    latest_charge  TEXT,
    created        INTEGER NOT NULL DEFAULT (unixepoch())
);
CREATE INDEX IF NOT EXISTS payment_intents_of_owner ON payment_intents (owner, number);

-- Refunds. A `pending` refund counts, too, so that concurrent refunds cannot exceed the payment.
CREATE TABLE IF NOT EXISTS refunds (
    number         INTEGER PRIMARY KEY,
    id             TEXT    NOT NULL UNIQUE,
    refund_key     TEXT    NOT NULL UNIQUE,
    attempts       INTEGER NOT NULL DEFAULT 1,
    payment_intent TEXT    NOT NULL REFERENCES payment_intents (id),
    amount         INTEGER NOT NULL CHECK (amount > 0),
    status         TEXT    NOT NULL,
    created        INTEGER NOT NULL DEFAULT (unixepoch())
);
CREATE INDEX IF NOT EXISTS refunds_of_intent ON refunds (payment_intent);

-- Ledger entries and receipts, if the database of the idempotency records has no transactions. A
-- retry must not insert a second row, which the statements check.
CREATE TABLE IF NOT EXISTS entries (
    payment        TEXT    NOT NULL,
    charge         TEXT    NOT NULL,
    amount         INTEGER NOT NULL,
    currency       TEXT    NOT NULL
);
CREATE TABLE IF NOT EXISTS receipts (
    payment        TEXT    NOT NULL
);
