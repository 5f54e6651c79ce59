//! Effects that are committed with the recorded response: `Tx` on both databases, with both kinds
//! of claim.

use actix_web::HttpResponse;
use test_support::{ClientResponse, Probe, Request, Server};

use self::database::Database;
use super::handlers::assert_problem;

mod database;
mod first_use;
mod handlers;
mod misconfigured;
mod policies;
mod rolled_back;
mod time_limits;
mod without_key;

/// The two kinds of claim.
const WAYS: [&str; 2] = ["/within", "/leased"];

type Open = fn(Probe) -> Database;

const BOTH: [Open; 2] = [Database::sqlite, Database::postgres];

fn send(path: &str, body: &str) -> Request {
    Request::post(path).user("alice").key("k").body(body)
}

/// Runs a case on each database with each kind of claim.
fn each(probe: impl Fn() -> Probe, case: impl Fn(&Database, &Server, &str)) {
    for open in BOTH {
        for way in WAYS {
            let database = open(probe());
            let server = database.serve();
            case(&database, &server, way);
            database.assert_nothing_is_open();
        }
    }
}

fn responding(status: impl Fn(usize) -> u16 + Clone + Send + Sync + 'static) -> impl Fn() -> Probe {
    move || {
        let status = status.clone();
        Probe::responding(move |run| {
            let status = actix_web::http::StatusCode::from_u16(status(run)).unwrap();
            HttpResponse::build(status).json(serde_json::json!({ "run": run }))
        })
    }
}

#[test]
fn effects_and_response_are_committed_together() {
    each(Probe::new, |database, server, way| {
        let first = server.send(&send(way, "an effect"));
        assert_eq!((first.status, first.is_replay()), (201, false), "{way}");
        assert_eq!(database.counts(), (1, 1), "{way}");
        server.send(&send(way, "an effect")).assert_replays(&first);
        assert_problem(&server.send(&send(way, "another")), 422, "key_reused", false);
        assert_eq!((database.counts(), database.probe.runs()), ((1, 1), 1), "{way}");
        // The effect references the record.
        database.execute("DELETE FROM idempotency_records");
        assert_eq!(database.counts(), (0, 0), "{way}");
    });
}

#[test]
fn an_unused_transaction_is_committed_with_the_record() {
    each(Probe::new, |database, server, way| {
        let first = server.send(&send(way, "nothing"));
        assert_eq!((first.status, database.counts()), (201, (0, 1)), "{way}");
        server.send(&send(way, "nothing")).assert_replays(&first);
    });
}

#[test]
fn a_response_of_400_or_above_rolls_the_effects_back_and_is_recorded() {
    each(responding(|_| 402), |database, server, way| {
        let first = server.send(&send(way, "an effect"));
        assert_eq!((first.status, first.is_replay()), (402, false), "{way}");
        assert_eq!(database.counts(), (0, 1), "{way}");
        server.send(&send(way, "an effect")).assert_replays(&first);
        assert_eq!(database.probe.runs(), 1, "{way}");
    });
}

#[test]
fn a_server_error_is_recorded_without_its_effects_under_record_all() {
    for open in BOTH {
        let database = open(responding(|_| 500)());
        let server = database.serve();
        let first = server.send(&send("/all", "an effect"));
        assert_eq!((first.status, database.counts()), (500, (0, 1)));
        server.send(&send("/all", "an effect")).assert_replays(&first);
        database.assert_nothing_is_open();
    }
}

#[test]
fn a_response_that_is_not_recorded_undoes_the_effects_and_releases_the_key() {
    each(responding(|run| if run == 1 { 503 } else { 201 }), |database, server, way| {
        assert_eq!(server.send(&send(way, "an effect")).status, 503, "{way}");
        assert_eq!(database.counts(), (0, 0), "{way}");
        let second = server.send(&send(way, "an effect"));
        assert_eq!(
            (second.status, second.is_replay(), database.counts()),
            (201, false, (1, 1)),
            "{way}"
        );
    });
}

#[test]
fn a_handler_that_returns_retryable_has_no_effects() {
    each(Probe::new, |database, server, way| {
        for run in 1..=2 {
            let response = server.send(&send(way, "retryable"));
            assert_eq!((response.status, response.is_replay()), (201, false), "{way}");
            assert_eq!((database.counts(), database.probe.runs()), ((0, 0), run), "{way}");
        }
    });
}

#[test]
fn a_handler_that_returns_unknown_holds_its_key() {
    each(Probe::new, |database, server, way| {
        assert_eq!(server.send(&send(way, "unknown")).status, 201, "{way}");
        assert_problem(&server.send(&send(way, "unknown")), 409, "outcome_unknown", false);
        let held = database.number("SELECT count(*) FROM idempotency_records WHERE state = 3");
        assert_eq!((database.counts(), held, database.probe.runs()), ((0, 0), 1, 1), "{way}");
    });
}

#[test]
fn a_panic_undoes_the_effects() {
    each(Probe::new, |database, server, way| {
        for run in 1..=2 {
            assert_problem(&server.send(&send(way, "panic")), 500, "handler_failed", true);
            assert_eq!((database.counts(), database.probe.runs()), ((0, 0), run), "{way}");
        }
    });
}

#[test]
fn a_duplicate_of_a_running_request_gets_409() {
    each(Probe::new, |database, server, way| {
        database.probe.hold();
        let first = server.begin(&send(way, "an effect"));
        database.probe.await_runs(1);
        let retry_after =
            assert_problem(&server.send(&send(way, "an effect")), 409, "in_flight", true);
        assert!(retry_after.is_some(), "{way}: no Retry-After");
        assert_problem(&server.send(&send(way, "another")), 422, "key_reused", false);
        database.probe.release_all();
        let first = first.response();
        server.send(&send(way, "an effect")).assert_replays(&first);
        assert_eq!((database.counts(), database.probe.runs()), ((1, 1), 1), "{way}");
    });
}

#[test]
fn a_duplicate_waits_for_an_attempt_in_the_same_process() {
    for open in BOTH {
        let database = open(responding(|run| if run == 1 { 503 } else { 201 })());
        let server = database.serve();
        database.probe.hold();
        let first = server.begin(&send("/patient", "an effect"));
        database.probe.await_runs(1);
        let others: Vec<_> = (0..5).map(|_| server.begin(&send("/patient", "an effect"))).collect();
        database.probe.release(1);
        assert_eq!(first.response().status, 503);
        // It was not recorded, so one of the waiting requests runs.
        database.probe.await_runs(2);
        database.probe.release_all();
        let responses: Vec<ClientResponse> =
            others.into_iter().map(|other| other.response()).collect();
        assert!(responses.iter().all(|response| response.status == 201), "{responses:?}");
        assert_eq!(responses.iter().filter(|response| !response.is_replay()).count(), 1);
        assert_eq!((database.counts(), database.probe.runs()), ((1, 1), 2));
        database.assert_nothing_is_open();
    }
}

#[test]
fn a_duplicate_waits_for_an_attempt_in_another_process() {
    let database = Database::postgres(Probe::new());
    let others = [database.serve(), database.elsewhere().serve()];
    database.probe.hold();
    let first = others[0].begin(&send("/within", "an effect"));
    database.probe.await_runs(1);
    // The request waits briefly for the transaction, whatever its body: the record cannot be read
    // yet.
    for body in ["an effect", "another"] {
        assert_problem(&others[1].send(&send("/within", body)), 409, "in_flight", true);
    }
    database.probe.release_all();
    let first = first.response();
    others[1].send(&send("/within", "an effect")).assert_replays(&first);
    assert_problem(&others[1].send(&send("/within", "another")), 422, "key_reused", false);
    assert_eq!((database.counts(), database.probe.runs()), ((1, 1), 1));
}

/// Sends a request until no earlier operation blocks it.
fn finished(server: &Server, request: &Request) -> ClientResponse {
    loop {
        let response = server.send(request);
        if response.status != 409 {
            return response;
        }
    }
}

#[test]
fn a_client_that_disconnects_changes_nothing() {
    each(Probe::new, |database, server, way| {
        database.probe.hold();
        let first = server.begin(&send(way, "an effect"));
        database.probe.await_runs(1);
        drop(first);
        database.probe.release_all();
        let response = finished(server, &send(way, "an effect"));
        assert!(response.is_replay(), "{way}");
        assert_eq!((database.counts(), database.probe.runs()), ((1, 1), 1), "{way}");
    });
}

#[test]
fn an_attempt_that_lost_its_lease_commits_nothing() {
    let database = Database::postgres(Probe::new());
    let server = database.serve();
    database.probe.hold();
    let first = server.begin(&send("/leased", "an effect"));
    database.probe.await_runs(1);
    database.expire_leases();
    let second = server.begin(&send("/leased", "an effect"));
    database.probe.await_runs(2);
    database.probe.release(2);
    let second = second.response();
    assert_eq!((second.status, second.is_replay(), database.counts()), (201, false, (1, 1)));
    database.probe.release(1);
    first.response().assert_replays(&second);
    assert_eq!(database.number("SELECT count(*) FROM effects WHERE note = 'an effect 1'"), 1);
    assert_eq!(database.counts(), (1, 1));
    database.assert_nothing_is_open();
}

#[test]
fn savepoints_behave_as_in_sqlx() {
    each(Probe::new, |database, server, way| {
        assert_eq!(server.send(&send(way, "savepoint")).status, 201, "{way}");
        assert_eq!(database.counts(), (1, 1), "{way}");
        assert_eq!(
            database.number("SELECT count(*) FROM effects WHERE note = 'undone'"),
            0,
            "{way}"
        );
    });
}

#[test]
fn simple_queries_behave_the_same() {
    for way in WAYS {
        let database = Database::postgres_with(Probe::new(), "?statement-cache-capacity=0");
        let server = database.serve();
        let first = server.send(&send(way, "an effect"));
        assert_eq!((first.status, database.counts()), (201, (1, 1)), "{way}");
        server.send(&send(way, "an effect")).assert_replays(&first);
        database.assert_nothing_is_open();
    }
}

#[test]
fn no_log_of_the_driver_contains_a_response() {
    const RESPONSE: &str = "the-response-of-a-transaction";
    test_support::log::capture();
    each(
        || Probe::responding(|_| HttpResponse::Created().body(RESPONSE)),
        |_, server, way| {
            let first = server.send(&send(way, "an effect"));
            assert_eq!((first.status, first.text()), (201, RESPONSE));
            server.send(&send(way, "an effect")).assert_replays(&first);
        },
    );
    Database::sqlite(Probe::new()).execute("SELECT 'a statement that is logged'");
    let log = test_support::log::captured();
    assert!(log.contains("a statement that is logged"));
    let hexadecimal: String = RESPONSE.bytes().map(|byte| format!("{byte:02x}")).collect();
    for response in [RESPONSE, &hexadecimal] {
        assert_eq!(log.lines().find(|line| line.contains(response)), None);
    }
}
