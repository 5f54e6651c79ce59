//! Transactions that cannot be committed: their effects are undone, and no response is recorded.

use std::time::{Duration, Instant};

use super::{CLAIMS, DATABASES, Open, database::Database, send, send_until_not_in_flight};
use test_support::Probe;

/// What a task notes that has kept its `Tx` beyond the response.
const OUTSIDE: &str = "it has no connection any more";

/// Asserts that two requests in a row run, get one of these statuses, and commit nothing.
fn assert_nothing_is_committed(open: Open, body: &str, statuses: &[u16]) {
    for path in CLAIMS {
        let database = open(Probe::new());
        let server = database.serve();
        for run in 1..=2 {
            let response = send_until_not_in_flight(&server, &send(path, body));
            assert!(statuses.contains(&response.status), "{path} {body}: {}", response.text());
            assert_eq!((database.counts(), database.probe.runs()), ((0, 0), run), "{path} {body}");
        }
        let refused = || database.probe.notes().iter().filter(|note| *note == OUTSIDE).count();
        let expected = if body == "kept" { 2 } else { 0 };
        let deadline = Instant::now() + Duration::from_secs(20);
        while refused() < expected && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(refused(), expected, "{path} {body}");
        database.drain_and_assert_no_open_transaction();
        assert_eq!(database.counts(), (0, 0), "{path} {body}");
    }
}

#[test]
fn a_commit_that_the_database_refuses_records_no_response() {
    for open in DATABASES {
        assert_nothing_is_committed(open, "dangling", &[500]);
    }
}

#[test]
fn a_transaction_that_outlives_the_handler_is_rolled_back() {
    for open in DATABASES {
        assert_nothing_is_committed(open, "kept", &[500]);
    }
}

#[test]
fn a_savepoint_that_was_never_ended_is_not_committed() {
    for open in DATABASES {
        assert_nothing_is_committed(open, "open savepoint", &[500]);
    }
}

#[test]
fn a_transaction_in_which_a_statement_failed_is_not_committed() {
    assert_nothing_is_committed(Database::postgres, "failed statement", &[500]);
}

#[test]
fn a_transaction_that_sqlite_has_rolled_back_commits_nothing_more() {
    assert_nothing_is_committed(Database::sqlite, "rolled back", &[500]);
}

#[test]
fn a_lost_connection_commits_nothing() {
    assert_nothing_is_committed(Database::postgres, "lost connection", &[503]);
}
