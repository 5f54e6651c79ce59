//! Requests without a key have a transaction, but no record.

use std::time::Duration;

use test_support::{Probe, Request};

use super::{super::handlers::assert_problem, DATABASES, database::Database, responding};

#[test]
fn a_request_without_a_key_has_a_transaction() {
    for open in DATABASES {
        let database = open(responding(|run| [201, 402, 500, 201][run - 1])());
        let server = database.serve();
        let unkeyed =
            |body: &str| server.send(&Request::post("/optional").user("alice").body(body));
        assert_eq!((unkeyed("one").status, database.counts()), (201, (1, 0)));
        assert_eq!((unkeyed("two").status, database.counts()), (402, (1, 0)));
        assert_eq!((unkeyed("three").status, database.counts()), (500, (1, 0)));
        assert_eq!((unkeyed("dangling").status, database.counts()), (500, (1, 0)));
        database.drain_and_assert_no_open_transaction();
    }
}

/// A retry without a key would run again, so it is not offered.
#[test]
fn a_request_without_a_key_whose_transaction_cannot_begin_is_not_retryable() {
    let database =
        Database::sqlite(responding(|_| 201)()).with_store_timeout(Duration::from_secs(1));
    let server = database.serve();
    // Takes the lock of the file's single writer.
    database.execute("BEGIN IMMEDIATE");
    let refused = server.send(&Request::post("/optional").user("alice").body("late"));
    database.execute("ROLLBACK");
    assert_eq!(assert_problem(&refused, 503, "store_unavailable", false), None);
    assert_eq!(refused.json()["detail"], "Part of the operation may have been done.");
}

/// Postgres reports success for the `COMMIT` of a transaction in which a statement failed, although
/// it rolls back.
#[test]
fn a_request_without_a_key_whose_statement_failed_does_not_succeed() {
    let database = Database::postgres(Probe::new());
    let response =
        database.serve().send(&Request::post("/optional").user("alice").body("failed statement"));
    assert_eq!((response.status, database.counts()), (500, (0, 0)));
    database.drain_and_assert_no_open_transaction();
}
