//! With `claim = "lease"` a transaction begins when the handler first uses its `Tx`.

use std::time::Duration;

use test_support::Probe;

use super::{super::handlers::assert_problem, BOTH, database::Database, finished, send};

#[test]
fn a_handler_that_has_not_used_its_tx_has_no_transaction_open() {
    for open in BOTH {
        let database = open(Probe::new());
        let server = database.serve();
        database.probe.hold();
        let first = server.begin(&send("/leased", "late"));
        database.probe.await_runs(1);
        database.assert_no_transaction_stays_open();
        database.probe.release_all();
        let first = first.response();
        assert_eq!((first.status, database.counts()), (201, (1, 1)));
        server.send(&send("/leased", "late")).assert_replays(&first);
        database.assert_nothing_is_open();
    }
}

#[test]
fn a_transaction_that_cannot_begin_is_reported_as_a_problem_and_the_key_is_released() {
    let database = Database::sqlite(Probe::new()).with_store_timeout(Duration::from_secs(1));
    let server = database.serve();
    database.probe.hold();
    let first = server.begin(&send("/leased", "late"));
    database.probe.await_runs(1);
    // The lock of the file's single writer.
    database.execute("BEGIN IMMEDIATE");
    database.probe.release_all();
    let refused = assert_problem(&first.response(), 503, "store_unavailable", true);
    assert!(refused.is_some(), "no Retry-After");
    database.execute("ROLLBACK");
    let second = finished(&server, &send("/leased", "late"));
    assert_eq!((second.status, second.is_replay()), (201, false));
    assert_eq!((database.counts(), database.probe.runs()), ((1, 1), 2));
}
