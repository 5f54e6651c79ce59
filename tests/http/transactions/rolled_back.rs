//! Transactions that cannot be committed: their effects are undone, and no response is recorded.

use std::time::Duration;

use super::{BOTH, Open, WAYS, database::Database, finished, send};
use test_support::Probe;

/// Each of these gets an error response, and the next request runs.
fn nothing_is_committed(open: Open, body: &str, statuses: &[u16]) {
    for way in WAYS {
        let database = open(Probe::new());
        let server = database.serve();
        for run in 1..=2 {
            let response = finished(&server, &send(way, body));
            assert!(statuses.contains(&response.status), "{way} {body}: {}", response.text());
            assert_eq!((database.counts(), database.probe.runs()), ((0, 0), run), "{way} {body}");
        }
        std::thread::sleep(Duration::from_millis(if body == "kept" { 400 } else { 0 }));
        database.assert_nothing_is_open();
        assert_eq!(database.counts(), (0, 0), "{way} {body}");
    }
}

#[test]
fn a_commit_that_the_database_refuses_records_no_response() {
    for open in BOTH {
        nothing_is_committed(open, "dangling", &[500]);
    }
}

#[test]
fn a_transaction_that_outlives_the_handler_is_rolled_back() {
    for open in BOTH {
        nothing_is_committed(open, "kept", &[500]);
    }
}

#[test]
fn a_savepoint_that_was_never_ended_is_not_committed() {
    for open in BOTH {
        nothing_is_committed(open, "open savepoint", &[500]);
    }
}

#[test]
fn a_transaction_in_which_a_statement_failed_is_not_committed() {
    nothing_is_committed(Database::postgres, "failed statement", &[500]);
}

#[test]
fn a_transaction_that_sqlite_has_rolled_back_commits_nothing_more() {
    nothing_is_committed(Database::sqlite, "rolled back", &[500]);
}

#[test]
fn a_lost_connection_commits_nothing() {
    nothing_is_committed(Database::postgres, "lost connection", &[503]);
}
