//! Effects that are committed with the recorded response: `Tx` on SQLite and Postgres, with
//! `claim = "lease"` and `claim = "transaction"`.

use actix_web::HttpResponse;
use test_support::{ClientResponse, Probe, Request, Server};

use self::database::Database;
use super::handlers::assert_problem;

mod database;
mod first_use;
mod handlers;
mod held;
mod misconfigured;
mod nested;
mod policies;
mod rolled_back;
mod steps;
mod time_limits;
mod without_key;

/// The paths of a handler with each kind of claim.
const CLAIMS: [&str; 2] = ["/claim-transaction", "/claim-lease"];

type Open = fn(Probe) -> Database;

const DATABASES: [Open; 2] = [Database::sqlite, Database::postgres];

fn send(path: &str, body: &str) -> Request {
    Request::post(path).user("alice").key("k").body(body)
}

/// Runs a case on each database, with each kind of claim.
fn on_each_database_and_claim(probe: impl Fn() -> Probe, case: impl Fn(&Database, &Server, &str)) {
    for open in DATABASES {
        for path in CLAIMS {
            let database = open(probe());
            let server = database.serve();
            case(&database, &server, path);
            database.drain_and_assert_no_open_transaction();
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
    on_each_database_and_claim(Probe::new, |database, server, path| {
        let first = server.send(&send(path, "an effect"));
        assert_eq!((first.status, first.is_replay()), (201, false), "{path}");
        assert_eq!(database.counts(), (1, 1), "{path}");
        server.send(&send(path, "an effect")).assert_replays(&first);
        assert_problem(&server.send(&send(path, "another")), 422, "key_reused", false);
        assert_eq!((database.counts(), database.probe.runs()), ((1, 1), 1), "{path}");
        // The effect references the record, and is deleted with it.
        database.execute("DELETE FROM idempotency_records");
        assert_eq!(database.counts(), (0, 0), "{path}");
    });
}

#[test]
fn an_unused_transaction_is_committed_with_the_record() {
    on_each_database_and_claim(Probe::new, |database, server, path| {
        let first = server.send(&send(path, "nothing"));
        assert_eq!((first.status, database.counts()), (201, (0, 1)), "{path}");
        server.send(&send(path, "nothing")).assert_replays(&first);
    });
}

#[test]
fn a_response_of_400_or_above_rolls_the_effects_back_and_is_recorded() {
    on_each_database_and_claim(responding(|_| 402), |database, server, path| {
        let first = server.send(&send(path, "an effect"));
        assert_eq!((first.status, first.is_replay()), (402, false), "{path}");
        assert_eq!(database.counts(), (0, 1), "{path}");
        server.send(&send(path, "an effect")).assert_replays(&first);
        assert_eq!(database.probe.runs(), 1, "{path}");
    });
}

#[test]
fn a_server_error_is_recorded_without_its_effects_under_record_all() {
    for open in DATABASES {
        let database = open(responding(|_| 500)());
        let server = database.serve();
        let first = server.send(&send("/record_all", "an effect"));
        assert_eq!((first.status, database.counts()), (500, (0, 1)));
        server.send(&send("/record_all", "an effect")).assert_replays(&first);
        database.drain_and_assert_no_open_transaction();
    }
}

#[test]
fn a_response_that_is_not_recorded_undoes_the_effects_and_releases_the_key() {
    on_each_database_and_claim(
        responding(|run| if run == 1 { 503 } else { 201 }),
        |database, server, path| {
            assert_eq!(server.send(&send(path, "an effect")).status, 503, "{path}");
            assert_eq!(database.counts(), (0, 0), "{path}");
            let second = server.send(&send(path, "an effect"));
            assert_eq!(
                (second.status, second.is_replay(), database.counts()),
                (201, false, (1, 1)),
                "{path}"
            );
        },
    );
}

#[test]
fn a_handler_that_returns_retryable_has_no_effects() {
    on_each_database_and_claim(Probe::new, |database, server, path| {
        for run in 1..=2 {
            let response = server.send(&send(path, "retryable"));
            assert_eq!((response.status, response.is_replay()), (201, false), "{path}");
            assert_eq!((database.counts(), database.probe.runs()), ((0, 0), run), "{path}");
        }
    });
}

#[test]
fn a_handler_that_returns_unknown_holds_its_key() {
    on_each_database_and_claim(Probe::new, |database, server, path| {
        assert_eq!(server.send(&send(path, "unknown")).status, 201, "{path}");
        assert_problem(&server.send(&send(path, "unknown")), 409, "outcome_unknown", false);
        let held = database.number("SELECT count(*) FROM idempotency_records WHERE state = 3");
        assert_eq!((database.counts(), held, database.probe.runs()), ((0, 0), 1, 1), "{path}");
    });
}

#[test]
fn a_panic_undoes_the_effects() {
    on_each_database_and_claim(Probe::new, |database, server, path| {
        for run in 1..=2 {
            assert_problem(&server.send(&send(path, "panic")), 500, "handler_failed", true);
            assert_eq!((database.counts(), database.probe.runs()), ((0, 0), run), "{path}");
        }
    });
}

#[test]
fn a_duplicate_of_a_running_request_gets_409() {
    on_each_database_and_claim(Probe::new, |database, server, path| {
        database.probe.hold();
        let first = server.begin(&send(path, "an effect"));
        database.probe.await_runs(1);
        let retry_after =
            assert_problem(&server.send(&send(path, "an effect")), 409, "in_flight", true);
        assert!(retry_after.is_some(), "{path}: no Retry-After");
        assert_problem(&server.send(&send(path, "another")), 422, "key_reused", false);
        database.probe.release_all();
        let first = first.response();
        server.send(&send(path, "an effect")).assert_replays(&first);
        assert_eq!((database.counts(), database.probe.runs()), ((1, 1), 1), "{path}");
    });
}

#[test]
fn a_duplicate_waits_for_an_attempt_in_the_same_process() {
    for open in DATABASES {
        let database = open(responding(|run| if run == 1 { 503 } else { 201 })());
        let server = database.serve();
        database.probe.hold();
        let first = server.begin(&send("/wait_15s", "an effect"));
        database.probe.await_runs(1);
        let others: Vec<_> =
            (0..5).map(|_| server.begin(&send("/wait_15s", "an effect"))).collect();
        database.probe.release(1);
        assert_eq!(first.response().status, 503);
        // That response was not recorded, so one of the waiting requests runs.
        database.probe.await_runs(2);
        database.probe.release_all();
        let responses: Vec<ClientResponse> =
            others.into_iter().map(|other| other.response()).collect();
        assert!(responses.iter().all(|response| response.status == 201), "{responses:?}");
        assert_eq!(responses.iter().filter(|response| !response.is_replay()).count(), 1);
        assert_eq!((database.counts(), database.probe.runs()), ((1, 1), 2));
        database.drain_and_assert_no_open_transaction();
    }
}

#[test]
fn a_duplicate_waits_for_an_attempt_in_another_process() {
    let database = Database::postgres(Probe::new());
    let others = [database.serve(), database.other_process().serve()];
    database.probe.hold();
    let first = others[0].begin(&send("/claim-transaction", "an effect"));
    database.probe.await_runs(1);
    // A request waits briefly for the transaction. A different body is no mismatch yet, because the
    // record is not visible before the commit.
    for body in ["an effect", "another"] {
        assert_problem(&others[1].send(&send("/claim-transaction", body)), 409, "in_flight", true);
    }
    database.probe.release_all();
    let first = first.response();
    others[1].send(&send("/claim-transaction", "an effect")).assert_replays(&first);
    assert_problem(
        &others[1].send(&send("/claim-transaction", "another")),
        422,
        "key_reused",
        false,
    );
    assert_eq!((database.counts(), database.probe.runs()), ((1, 1), 1));
}

/// Sends a request again while the response is 409.
fn send_until_not_in_flight(server: &Server, request: &Request) -> ClientResponse {
    loop {
        let response = server.send(request);
        if response.status != 409 {
            return response;
        }
    }
}

#[test]
fn a_disconnecting_client_does_not_interrupt_the_transaction() {
    on_each_database_and_claim(Probe::new, |database, server, path| {
        database.probe.hold();
        let first = server.begin(&send(path, "an effect"));
        database.probe.await_runs(1);
        drop(first);
        database.probe.release_all();
        let response = send_until_not_in_flight(server, &send(path, "an effect"));
        assert!(response.is_replay(), "{path}");
        assert_eq!((database.counts(), database.probe.runs()), ((1, 1), 1), "{path}");
    });
}

#[test]
fn an_attempt_that_lost_its_lease_commits_nothing() {
    let database = Database::postgres(Probe::new());
    let server = database.serve();
    database.probe.hold();
    let first = server.begin(&send("/claim-lease", "an effect"));
    database.probe.await_runs(1);
    database.expire_leases();
    let second = server.begin(&send("/claim-lease", "an effect"));
    database.probe.await_runs(2);
    database.probe.release(2);
    let second = second.response();
    assert_eq!((second.status, second.is_replay(), database.counts()), (201, false, (1, 1)));
    database.probe.release(1);
    first.response().assert_replays(&second);
    assert_eq!(database.number("SELECT count(*) FROM effects WHERE note = 'an effect 1'"), 1);
    assert_eq!(database.counts(), (1, 1));
    database.drain_and_assert_no_open_transaction();
}

#[test]
fn savepoints_behave_as_in_sqlx() {
    on_each_database_and_claim(Probe::new, |database, server, path| {
        assert_eq!(server.send(&send(path, "savepoint")).status, 201, "{path}");
        assert_eq!(database.counts(), (1, 1), "{path}");
        assert_eq!(
            database.number("SELECT count(*) FROM effects WHERE note = 'undone'"),
            0,
            "{path}"
        );
    });
}

#[test]
fn effects_are_committed_without_a_statement_cache() {
    for path in CLAIMS {
        let database = Database::postgres_with(Probe::new(), "?statement-cache-capacity=0");
        let server = database.serve();
        let first = server.send(&send(path, "an effect"));
        assert_eq!((first.status, database.counts()), (201, (1, 1)), "{path}");
        server.send(&send(path, "an effect")).assert_replays(&first);
        database.drain_and_assert_no_open_transaction();
    }
}

#[test]
fn no_log_of_the_driver_contains_a_response() {
    const RESPONSE: &str = "the-response-of-a-transaction";
    test_support::log::capture();
    on_each_database_and_claim(
        || Probe::responding(|_| HttpResponse::Created().body(RESPONSE)),
        |_, server, path| {
            let first = server.send(&send(path, "an effect"));
            assert_eq!((first.status, first.text()), (201, RESPONSE));
            server.send(&send(path, "an effect")).assert_replays(&first);
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
