//! A handler with `abandoned = "hold"` whose transaction is not committed leaves its key held, and
//! the problem that its client gets says so.

use test_support::Probe;

use super::{DATABASES, database::Database, send};
use crate::handlers::assert_problem;

#[test]
fn a_client_whose_key_is_held_is_not_told_to_retry() {
    // The handler keeps its transaction; the commit violates a constraint.
    for (open, body) in
        DATABASES.iter().flat_map(|open| ["kept", "dangling"].map(|body| (open, body)))
    {
        let database: Database = open(Probe::new());
        let server = database.serve();
        let first = server.send(&send("/held", body));
        assert_eq!(assert_problem(&first, 500, "handler_failed", false), None, "{body}");
        let detail = "Check what this request did. Sending it again will not run it.";
        assert_eq!(first.json()["detail"], detail, "{body}");
        assert_problem(&server.send(&send("/held", body)), 409, "outcome_unknown", false);
        assert_eq!((database.counts(), database.probe.runs()), ((0, 0), 1), "{body}");
        database.drain_and_assert_no_open_transaction();
    }
}
