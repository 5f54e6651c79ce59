//! What the handlers do, and what must be committed afterwards.

/// One action of a handler. The handler continues whatever the outcome.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// Statements that may fail.
    Sql(&'static str),
    /// Statements that fail for this reason.
    Fails(&'static str, &'static str),
    /// A statement for which the file has no room.
    Full(&'static str),
    /// A statement that is interrupted.
    Interrupted(&'static str),
    /// A statement whose future is dropped.
    Dropped(&'static str),
    /// A nested transaction that runs a statement and is dropped.
    Nested(&'static str),
    /// Removes the hooks from the connection.
    Unhooked,
}

/// What must be committed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The record and these effects.
    Committed(&'static [&'static str]),
    /// Nothing.
    Lost,
    /// The handler's response undoes its effects. Whether the transaction was lost before.
    Refused(bool),
}

pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) script: &'static [Step],
    pub(super) end: End,
}

use End::{Committed, Lost, Refused};
use Step::{Dropped, Fails, Full, Interrupted, Nested, Sql, Unhooked};

const BEFORE: Step = Sql("INSERT INTO effects VALUES ('before', NULL)");
const AFTER: Step = Sql("INSERT INTO effects VALUES ('after', NULL)");
/// One row: without a statement journal, SQLite can only undo the whole transaction.
const LARGE: &str = "INSERT INTO effects VALUES (hex(zeroblob(1000000)), NULL)";
const MANY: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000)
    INSERT INTO effects SELECT i, NULL FROM n";

const fn case(name: &'static str, script: &'static [Step], end: End) -> Case {
    Case { name, script, end }
}

pub(super) const CASES: &[Case] = &[
    case("nothing", &[], Committed(&[])),
    case("an effect", &[BEFORE], Committed(&["before"])),
    case("an effect that is refused", &[BEFORE], Refused(false)),
    case(
        "a nested transaction that is dropped last",
        &[BEFORE, Nested("INSERT INTO effects VALUES ('nested', NULL)")],
        Committed(&["before"]),
    ),
    case(
        "a nested transaction that is dropped, and a response that undoes the effects",
        &[BEFORE, Nested("INSERT INTO effects VALUES ('nested', NULL)")],
        Refused(false),
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
        &[BEFORE, Fails("INSERT INTO beside VALUES ('taken')", "UNIQUE"), AFTER],
        Lost,
    ),
    case(
        "a trigger's rollback",
        &[BEFORE, Fails("INSERT INTO watched VALUES ('x')", "refused"), AFTER],
        Lost,
    ),
    case("a full disk", &[BEFORE, Full(LARGE), AFTER], Lost),
    case("an interrupted statement", &[BEFORE, Interrupted(MANY), AFTER], Lost),
    case(
        "a rollback in a savepoint",
        &[
            BEFORE,
            Sql("SAVEPOINT a"),
            Fails("INSERT INTO watched VALUES ('x')", "refused"),
            Sql("RELEASE a"),
            AFTER,
        ],
        Lost,
    ),
    case(
        "a lost transaction that is refused",
        &[BEFORE, Fails("INSERT INTO watched VALUES ('x')", "refused"), AFTER],
        Refused(true),
    ),
    // What the handler does to the transaction.
    case("ROLLBACK", &[BEFORE, Sql("ROLLBACK"), AFTER], Lost),
    case("COMMIT", &[BEFORE, Sql("COMMIT")], Lost),
    case("COMMIT, effects after", &[BEFORE, Sql("COMMIT"), AFTER], Lost),
    case("COMMIT, then BEGIN", &[BEFORE, Sql("COMMIT; BEGIN IMMEDIATE"), AFTER], Lost),
    case("END that is refused", &[BEFORE, Sql("END"), AFTER], Refused(true)),
    case("ROLLBACK, then BEGIN", &[BEFORE, Sql("ROLLBACK; BEGIN IMMEDIATE"), AFTER], Lost),
    case(
        "ROLLBACK, then BEGIN and COMMIT",
        &[BEFORE, Sql("ROLLBACK; BEGIN IMMEDIATE"), AFTER, Sql("COMMIT")],
        Lost,
    ),
    case(
        "ROLLBACK, then our savepoint",
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
        "a savepoint of our name",
        &[BEFORE, Sql("SAVEPOINT idempotent_effects"), AFTER],
        Committed(&["after", "before"]),
    ),
    case(
        "a savepoint of our name that is refused",
        &[BEFORE, Sql("SAVEPOINT idempotent_effects"), AFTER],
        Refused(false),
    ),
    case(
        "our savepoint undone",
        &[BEFORE, Sql("ROLLBACK TO idempotent_effects"), AFTER],
        Committed(&["after", "before"]),
    ),
    case(
        "our savepoint released",
        &[BEFORE, Sql("RELEASE idempotent_effects"), AFTER],
        Committed(&["after", "before"]),
    ),
    case(
        "a savepoint that is left open",
        &[BEFORE, Sql("SAVEPOINT a"), AFTER],
        Committed(&["after", "before"]),
    ),
    // What the handler leaves behind.
    case(
        "an exclusive lock",
        &[BEFORE, Sql("PRAGMA locking_mode = EXCLUSIVE; SELECT * FROM effects"), AFTER],
        Committed(&["after", "before"]),
    ),
    case(
        "no room for more",
        &[BEFORE, AFTER, Sql("PRAGMA max_page_count = 1")],
        Committed(&["after", "before"]),
    ),
    case("query_only", &[BEFORE, Sql("PRAGMA query_only = ON"), AFTER], Lost),
    case(
        "a temporary table in the place of ours",
        &[
            BEFORE,
            Sql("CREATE TEMP TABLE idempotency_records AS SELECT * FROM main.idempotency_records"),
        ],
        Committed(&["before"]),
    ),
    case(
        "a temporary table in the place of an effect",
        &[Sql("CREATE TEMP TABLE effects (note, beside)"), AFTER],
        Committed(&[]),
    ),
    case(
        "an attached database",
        &[BEFORE, Sql("ATTACH ':memory:' AS other; CREATE TABLE other.idempotency_records (id)")],
        Committed(&["before"]),
    ),
    case("no hooks", &[BEFORE, Unhooked, AFTER], Committed(&["after", "before"])),
    case(
        "no hooks, and a new transaction",
        &[Unhooked, BEFORE, Sql("ROLLBACK; BEGIN IMMEDIATE; SAVEPOINT idempotent_effects"), AFTER],
        Lost,
    ),
    case(
        "a write in autocommit to another table",
        &[BEFORE, Sql("ROLLBACK; INSERT INTO beside VALUES ('after'); PRAGMA user_version = 7")],
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
