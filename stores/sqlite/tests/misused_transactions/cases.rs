//! What the handlers do, and what must be committed.

/// One action of a handler, which continues whatever the outcome.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// Statements that may fail.
    Sql(&'static str),
    /// Statements that fail for this reason.
    Fails(&'static str, &'static str),
    /// A statement for which the database file has no more pages.
    DiskFull(&'static str),
    /// A statement that is interrupted.
    Interrupted(&'static str),
    /// A statement whose future is dropped.
    Dropped(&'static str),
    /// A nested transaction that runs a statement and is dropped.
    Nested(&'static str),
    /// Removes the store's hooks from the connection.
    RemoveHooks,
}

/// What must be committed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The record and these effects.
    Committed(&'static [&'static str]),
    /// Nothing.
    Lost,
    /// The record without effects, because of the handler's error response. The flag says whether
    /// the transaction was lost before.
    RolledBack(bool),
}

pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) script: &'static [Step],
    pub(super) end: End,
}

use End::{Committed, Lost, RolledBack};
use Step::{DiskFull, Dropped, Fails, Interrupted, Nested, RemoveHooks, Sql};

const BEFORE: Step = Sql("INSERT INTO effects VALUES ('before', NULL)");
const AFTER: Step = Sql("INSERT INTO effects VALUES ('after', NULL)");
/// A single row, for which SQLite has no statement journal: it can only undo the whole transaction.
const LARGE: &str = "INSERT INTO effects VALUES (hex(zeroblob(1000000)), NULL)";
const MANY: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000)
    INSERT INTO effects SELECT i, NULL FROM n";

const fn case(name: &'static str, script: &'static [Step], end: End) -> Case {
    Case { name, script, end }
}

pub(super) const CASES: &[Case] = &[
    case("nothing", &[], Committed(&[])),
    case("an effect", &[BEFORE], Committed(&["before"])),
    case("an effect and an error response", &[BEFORE], RolledBack(false)),
    case(
        "a nested transaction that is dropped last",
        &[BEFORE, Nested("INSERT INTO effects VALUES ('nested', NULL)")],
        Committed(&["before"]),
    ),
    case(
        "a nested transaction that is dropped, and an error response",
        &[BEFORE, Nested("INSERT INTO effects VALUES ('nested', NULL)")],
        RolledBack(false),
    ),
    // SQLite undoes only the statement, not the transaction.
    case(
        "a failed statement",
        &[BEFORE, Fails("INSERT INTO effects VALUES ('before', NULL)", "UNIQUE"), AFTER],
        Committed(&["after", "before"]),
    ),
    case(
        "OR ABORT",
        &[BEFORE, Sql("INSERT OR ABORT INTO effects VALUES ('before', NULL)"), AFTER],
        Committed(&["after", "before"]),
    ),
    case(
        "OR FAIL",
        &[BEFORE, Sql("INSERT OR FAIL INTO effects VALUES ('before', NULL)"), AFTER],
        Committed(&["after", "before"]),
    ),
    case(
        "a dropped statement",
        &[BEFORE, Dropped("SELECT 1"), AFTER],
        Committed(&["after", "before"]),
    ),
    // SQLite undoes the whole transaction.
    case(
        "OR ROLLBACK",
        &[BEFORE, Fails("INSERT OR ROLLBACK INTO effects VALUES ('before', NULL)", "UNIQUE")],
        Lost,
    ),
    case(
        "OR ROLLBACK, effects after",
        &[
            BEFORE,
            Fails("INSERT OR ROLLBACK INTO effects VALUES ('before', NULL)", "UNIQUE"),
            AFTER,
        ],
        Lost,
    ),
    case(
        "ON CONFLICT ROLLBACK",
        &[BEFORE, Fails("INSERT INTO unique_notes VALUES ('taken')", "UNIQUE"), AFTER],
        Lost,
    ),
    case(
        "a trigger's rollback",
        &[BEFORE, Fails("INSERT INTO setup VALUES ('x')", "refused"), AFTER],
        Lost,
    ),
    case("a full disk", &[BEFORE, DiskFull(LARGE), AFTER], Lost),
    case("an interrupted statement", &[BEFORE, Interrupted(MANY), AFTER], Lost),
    case(
        "a rollback in a savepoint",
        &[
            BEFORE,
            Sql("SAVEPOINT a"),
            Fails("INSERT INTO setup VALUES ('x')", "refused"),
            Sql("RELEASE a"),
            AFTER,
        ],
        Lost,
    ),
    case(
        "a lost transaction and an error response",
        &[BEFORE, Fails("INSERT INTO setup VALUES ('x')", "refused"), AFTER],
        RolledBack(true),
    ),
    // The handler changes the transaction.
    case("ROLLBACK", &[BEFORE, Sql("ROLLBACK"), AFTER], Lost),
    case("COMMIT", &[BEFORE, Sql("COMMIT")], Lost),
    case("COMMIT, effects after", &[BEFORE, Sql("COMMIT"), AFTER], Lost),
    case("COMMIT, then BEGIN", &[BEFORE, Sql("COMMIT; BEGIN IMMEDIATE"), AFTER], Lost),
    case("END and an error response", &[BEFORE, Sql("END"), AFTER], RolledBack(true)),
    case("ROLLBACK, then BEGIN", &[BEFORE, Sql("ROLLBACK; BEGIN IMMEDIATE"), AFTER], Lost),
    case(
        "ROLLBACK, then BEGIN and COMMIT",
        &[BEFORE, Sql("ROLLBACK; BEGIN IMMEDIATE"), AFTER, Sql("COMMIT")],
        Lost,
    ),
    case(
        "ROLLBACK, then a savepoint with the store's name",
        &[BEFORE, Sql("ROLLBACK; BEGIN IMMEDIATE; SAVEPOINT idempotent_effects"), AFTER],
        Lost,
    ),
    case(
        "ROLLBACK, then a savepoint",
        &[BEFORE, Sql("ROLLBACK; SAVEPOINT a"), AFTER, Sql("RELEASE a")],
        Lost,
    ),
    case(
        "a savepoint that is released",
        &[BEFORE, Sql("SAVEPOINT a"), AFTER, Sql("RELEASE a")],
        Committed(&["after", "before"]),
    ),
    case(
        "a savepoint that is undone",
        &[BEFORE, Sql("SAVEPOINT a"), AFTER, Sql("ROLLBACK TO a; RELEASE a")],
        Committed(&["before"]),
    ),
    case(
        "a savepoint with the store's name",
        &[BEFORE, Sql("SAVEPOINT idempotent_effects"), AFTER],
        Committed(&["after", "before"]),
    ),
    case(
        "a savepoint with the store's name, and an error response",
        &[BEFORE, Sql("SAVEPOINT idempotent_effects"), AFTER],
        RolledBack(false),
    ),
    case(
        "the store's savepoint undone",
        &[BEFORE, Sql("ROLLBACK TO idempotent_effects"), AFTER],
        Committed(&["after", "before"]),
    ),
    case(
        "the store's savepoint released",
        &[BEFORE, Sql("RELEASE idempotent_effects"), AFTER],
        Committed(&["after", "before"]),
    ),
    case(
        "a savepoint that is left open",
        &[BEFORE, Sql("SAVEPOINT a"), AFTER],
        Committed(&["after", "before"]),
    ),
    // The handler changes the connection.
    case(
        "an exclusive lock",
        &[BEFORE, Sql("PRAGMA locking_mode = EXCLUSIVE; SELECT * FROM effects"), AFTER],
        Committed(&["after", "before"]),
    ),
    case(
        "no more pages",
        &[BEFORE, AFTER, Sql("PRAGMA max_page_count = 1")],
        Committed(&["after", "before"]),
    ),
    case("query_only", &[BEFORE, Sql("PRAGMA query_only = ON"), AFTER], Lost),
    case(
        "a temporary table with the name of the store's",
        &[
            BEFORE,
            Sql("CREATE TEMP TABLE idempotency_records AS SELECT * FROM main.idempotency_records"),
        ],
        Committed(&["before"]),
    ),
    case(
        "a temporary table with the name of the effects",
        &[Sql("CREATE TEMP TABLE effects (note, depends_on)"), AFTER],
        Committed(&[]),
    ),
    case(
        "an attached database",
        &[BEFORE, Sql("ATTACH ':memory:' AS other; CREATE TABLE other.idempotency_records (id)")],
        Committed(&["before"]),
    ),
    case("no hooks", &[BEFORE, RemoveHooks, AFTER], Committed(&["after", "before"])),
    case(
        "no hooks, and a new transaction",
        &[
            RemoveHooks,
            BEFORE,
            Sql("ROLLBACK; BEGIN IMMEDIATE; SAVEPOINT idempotent_effects"),
            AFTER,
        ],
        Lost,
    ),
    case(
        "a write in autocommit to another table",
        &[
            BEFORE,
            Sql("ROLLBACK; INSERT INTO unique_notes VALUES ('after'); PRAGMA user_version = 7"),
        ],
        Lost,
    ),
    case(
        "no foreign keys",
        &[Sql("ROLLBACK; PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF")],
        Lost,
    ),
    case(
        "a dangling reference",
        &[BEFORE, Sql("INSERT INTO effects VALUES ('after', 'nothing')")],
        Lost,
    ),
];
