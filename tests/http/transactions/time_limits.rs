//! Handlers with a transaction that exceed their time limit.

use std::time::Instant;

use test_support::Probe;

use super::{super::handlers::assert_problem, BOTH, Open, send};

/// The handler waits between two statements, or for a statement that takes longer than the test.
#[test]
fn a_handler_that_exceeds_its_time_limit_commits_nothing_and_runs_again() {
    std::thread::scope(|threads| {
        for open in BOTH {
            for way in ["/limited", "/limited/within"] {
                threads.spawn(move || {
                    ["an effect", "slow statement"]
                        .map(|body| exceeds_its_time_limit(open, way, body))
                });
            }
        }
    });
}

fn exceeds_its_time_limit(open: Open, way: &str, body: &str) {
    let database = open(Probe::new()).without_store_timeout();
    let server = database.serve();
    if body == "an effect" {
        database.probe.hold();
    }
    let late = server.send(&send(way, body));
    assert_problem(&late, 503, "handler_timed_out", true);
    database.probe.release_all();
    assert_eq!((database.counts(), database.probe.runs()), ((0, 0), 1), "{way} {body}");
    let began = Instant::now();
    let second = loop {
        let second = server.send(&send(way, body));
        if ![409, 503].contains(&second.status) {
            break second;
        }
        assert!(began.elapsed() < test_support::WAIT_LIMIT, "{way} {body}: the statement goes on");
    };
    assert_eq!((second.status, second.is_replay()), (201, false), "{way} {body}");
    assert_eq!(database.counts(), (1, 1), "{way} {body}");
    database.assert_nothing_is_open();
}
