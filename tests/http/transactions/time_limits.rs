//! Handlers with a transaction that exceed their time limit.

use std::time::Instant;

use test_support::Probe;

use super::{super::handlers::assert_problem, DATABASES, Open, send};

/// The time limit ends while the handler waits between two statements, or for a statement that
/// takes longer than the test.
#[test]
fn a_handler_that_exceeds_its_time_limit_commits_nothing_and_runs_again() {
    std::thread::scope(|threads| {
        for open in DATABASES {
            for path in ["/timeout/claim-lease", "/timeout/claim-transaction"] {
                threads.spawn(move || {
                    ["an effect", "slow statement"]
                        .map(|body| assert_commits_nothing(open, path, body))
                });
            }
        }
    });
}

fn assert_commits_nothing(open: Open, path: &str, body: &str) {
    let database = open(Probe::new()).without_store_timeout();
    let server = database.serve();
    if body == "an effect" {
        database.probe.hold();
    }
    let late = server.send(&send(path, body));
    assert_problem(&late, 503, "handler_timed_out", true);
    database.probe.release_all();
    assert_eq!((database.counts(), database.probe.runs()), ((0, 0), 1), "{path} {body}");
    let began = Instant::now();
    let second = loop {
        let second = server.send(&send(path, body));
        if ![409, 503].contains(&second.status) {
            break second;
        }
        assert!(
            began.elapsed() < test_support::WAIT_LIMIT,
            "{path} {body}: the statement is still running"
        );
    };
    assert_eq!((second.status, second.is_replay()), (201, false), "{path} {body}");
    assert_eq!(database.counts(), (1, 1), "{path} {body}");
    database.drain_and_assert_no_open_transaction();
}
