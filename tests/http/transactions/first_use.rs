//! With `claim = "lease"` a transaction begins when the handler first uses its `Tx`.

use std::time::Duration;

use test_support::{Probe, Request};

use super::{
    super::handlers::assert_problem, DATABASES, database::Database, send, send_until_not_in_flight,
};

#[test]
fn a_handler_that_has_not_used_its_tx_has_no_transaction_open() {
    for open in DATABASES {
        let database = open(Probe::new());
        let server = database.serve();
        database.probe.hold();
        let first = server.begin(&send("/claim-lease", "late"));
        database.probe.await_runs(1);
        database.assert_no_open_transaction();
        database.probe.release_all();
        let first = first.response();
        assert_eq!((first.status, database.counts()), (201, (1, 1)));
        server.send(&send("/claim-lease", "late")).assert_replays(&first);
        database.drain_and_assert_no_open_transaction();
    }
}

#[test]
fn a_transaction_that_cannot_begin_is_reported_as_a_problem_and_the_key_is_released() {
    let database = Database::sqlite(Probe::new()).with_store_timeout(Duration::from_secs(1));
    let server = database.serve();
    database.probe.hold();
    let first = server.begin(&send("/claim-lease", "late"));
    database.probe.await_runs(1);
    // Takes the lock of the file's single writer.
    database.execute("BEGIN IMMEDIATE");
    database.probe.release_all();
    let refused = assert_problem(&first.response(), 503, "store_unavailable", true);
    assert!(refused.is_some(), "no Retry-After");
    database.execute("ROLLBACK");
    let second = send_until_not_in_flight(&server, &send("/claim-lease", "late"));
    assert_eq!((second.status, second.is_replay()), (201, false));
    assert_eq!((database.counts(), database.probe.runs()), ((1, 1), 2));
}

/// On Postgres another handler has the only transaction that the store allows.
#[test]
fn a_handler_that_gets_no_transaction_in_time_is_reported_as_a_problem() {
    let database = Database::postgres_with(Probe::new(), "?max_transactions=1")
        .with_store_timeout(Duration::from_secs(1));
    let server = database.serve();
    let pay =
        |key: &str, body: &str| Request::post("/claim-lease").user("alice").key(key).body(body);
    database.probe.hold();
    let first = server.begin(&pay("k1", "early"));
    database.probe.await_runs(1);
    let second = server.begin(&pay("k2", "late"));
    database.probe.await_runs(2);
    database.probe.release(2);
    let refused = assert_problem(&second.response(), 503, "store_unavailable", true);
    assert!(refused.is_some(), "no Retry-After");
    database.probe.release_all();
    assert_eq!(first.response().status, 201);
    let again = send_until_not_in_flight(&server, &pay("k2", "late"));
    assert_eq!((again.status, again.is_replay()), (201, false));
    assert_eq!((database.counts(), database.probe.runs()), ((2, 2), 3));
}
