//! Effects that are committed with the answer: `Tx` on both databases, claimed before and claimed within.

use std::time::Duration;

use actix_web::{App, HttpResponse, web::Data};
use idempotent_actix::{Idempotency, store::MemoryStore};
use tests::{Answer, Probe, Request, Server};

use self::database::Database;
use super::handlers::assert_problem;

mod database;
mod handlers;
mod policies;
mod time_limits;

/// The two ways to claim.
const WAYS: [&str; 2] = ["/within", "/leased"];

type Open = fn(Probe) -> Database;

const BOTH: [Open; 2] = [Database::sqlite, Database::postgres];

fn send(path: &str, body: &str) -> Request {
    Request::post(path).user("alice").key("k").body(body)
}

/// Runs a case on each database, in each way.
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

fn answering(status: impl Fn(usize) -> u16 + Clone + Send + Sync + 'static) -> impl Fn() -> Probe {
    move || {
        let status = status.clone();
        Probe::answering(move |run| {
            let status = actix_web::http::StatusCode::from_u16(status(run)).unwrap();
            HttpResponse::build(status).json(serde_json::json!({ "run": run }))
        })
    }
}

#[test]
fn effects_and_answer_are_committed_together() {
    each(Probe::new, |database, server, way| {
        let first = server.send(&send(way, "an effect"));
        assert_eq!((first.status, first.is_replay()), (201, false), "{way}");
        assert_eq!(database.counts(), (1, 1), "{way}");
        server.send(&send(way, "an effect")).assert_replays(&first);
        assert_problem(&server.send(&send(way, "another")), 422, "key_reused", false);
        assert_eq!((database.counts(), database.probe.runs()), ((1, 1), 1), "{way}");
        // The effect refers to the record.
        database.execute("DELETE FROM idempotency_records");
        assert_eq!(database.counts(), (0, 0), "{way}");
    });
}

#[test]
fn a_transaction_that_the_handler_does_not_use_is_committed_all_the_same() {
    each(Probe::new, |database, server, way| {
        let first = server.send(&send(way, "nothing"));
        assert_eq!((first.status, database.counts()), (201, (0, 1)), "{way}");
        server.send(&send(way, "nothing")).assert_replays(&first);
    });
}

#[test]
fn an_answer_that_says_no_undoes_the_effects_and_is_kept() {
    each(answering(|_| 402), |database, server, way| {
        let first = server.send(&send(way, "an effect"));
        assert_eq!((first.status, first.is_replay()), (402, false), "{way}");
        assert_eq!(database.counts(), (0, 1), "{way}");
        server.send(&send(way, "an effect")).assert_replays(&first);
        assert_eq!(database.probe.runs(), 1, "{way}");
    });
}

#[test]
fn an_answer_of_the_server_is_kept_without_its_effects_where_all_are() {
    for open in BOTH {
        let database = open(answering(|_| 500)());
        let server = database.serve();
        let first = server.send(&send("/all", "an effect"));
        assert_eq!((first.status, database.counts()), (500, (0, 1)));
        server.send(&send("/all", "an effect")).assert_replays(&first);
        database.assert_nothing_is_open();
    }
}

#[test]
fn an_answer_that_is_not_kept_undoes_the_effects_and_gives_the_key_back() {
    each(answering(|run| if run == 1 { 503 } else { 201 }), |database, server, way| {
        assert_eq!(server.send(&send(way, "an effect")).status, 503, "{way}");
        assert_eq!(database.counts(), (0, 0), "{way}");
        let second = server.send(&send(way, "an effect"));
        assert_eq!((second.status, second.is_replay(), database.counts()), (201, false, (1, 1)), "{way}");
    });
}

#[test]
fn a_handler_that_says_retryable_has_done_nothing() {
    each(Probe::new, |database, server, way| {
        for run in 1..=2 {
            let answer = server.send(&send(way, "retryable"));
            assert_eq!((answer.status, answer.is_replay()), (201, false), "{way}");
            assert_eq!((database.counts(), database.probe.runs()), ((0, 0), run), "{way}");
        }
    });
}

#[test]
fn a_handler_that_does_not_know_holds_its_key() {
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
fn a_duplicate_of_what_runs_is_told_so() {
    each(Probe::new, |database, server, way| {
        database.probe.hold();
        let first = server.begin(&send(way, "an effect"));
        database.probe.await_runs(1);
        let told = assert_problem(&server.send(&send(way, "an effect")), 409, "in_flight", true);
        assert!(told.is_some(), "{way}: no Retry-After");
        assert_problem(&server.send(&send(way, "another")), 422, "key_reused", false);
        database.probe.release_all();
        let first = first.answer();
        server.send(&send(way, "an effect")).assert_replays(&first);
        assert_eq!((database.counts(), database.probe.runs()), ((1, 1), 1), "{way}");
    });
}

#[test]
fn a_duplicate_waits_for_what_runs_in_the_same_process() {
    for open in BOTH {
        let database = open(answering(|run| if run == 1 { 503 } else { 201 })());
        let server = database.serve();
        database.probe.hold();
        let first = server.begin(&send("/patient", "an effect"));
        database.probe.await_runs(1);
        let others: Vec<_> = (0..5).map(|_| server.begin(&send("/patient", "an effect"))).collect();
        database.probe.release(1);
        assert_eq!(first.answer().status, 503);
        // It was not kept, so one of those who wait runs.
        database.probe.await_runs(2);
        database.probe.release_all();
        let answers: Vec<Answer> = others.into_iter().map(|other| other.answer()).collect();
        assert!(answers.iter().all(|answer| answer.status == 201), "{answers:?}");
        assert_eq!(answers.iter().filter(|answer| !answer.is_replay()).count(), 1);
        assert_eq!((database.counts(), database.probe.runs()), ((1, 1), 2));
        database.assert_nothing_is_open();
    }
}

#[test]
fn a_duplicate_waits_for_what_runs_in_another_process() {
    let database = Database::postgres(Probe::new());
    let others = [database.serve(), database.elsewhere().serve()];
    database.probe.hold();
    let first = others[0].begin(&send("/within", "an effect"));
    database.probe.await_runs(1);
    // It waits for the transaction for a moment, whatever its body: nobody can read the record yet.
    for body in ["an effect", "another"] {
        assert_problem(&others[1].send(&send("/within", body)), 409, "in_flight", true);
    }
    database.probe.release_all();
    let first = first.answer();
    others[1].send(&send("/within", "an effect")).assert_replays(&first);
    assert_problem(&others[1].send(&send("/within", "another")), 422, "key_reused", false);
    assert_eq!((database.counts(), database.probe.runs()), ((1, 1), 1));
}

/// Sends a request until nothing that was begun before is in its way.
fn finished(server: &Server, request: &Request) -> Answer {
    loop {
        let answer = server.send(request);
        if answer.status != 409 {
            return answer;
        }
    }
}

#[test]
fn a_client_that_hangs_up_changes_nothing() {
    each(Probe::new, |database, server, way| {
        database.probe.hold();
        let first = server.begin(&send(way, "an effect"));
        database.probe.await_runs(1);
        drop(first);
        database.probe.release_all();
        let answer = finished(server, &send(way, "an effect"));
        assert!(answer.is_replay(), "{way}");
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
    database.lapse();
    let second = server.begin(&send("/leased", "an effect"));
    database.probe.await_runs(2);
    database.probe.release(2);
    let second = second.answer();
    assert_eq!((second.status, second.is_replay(), database.counts()), (201, false, (1, 1)));
    database.probe.release(1);
    first.answer().assert_replays(&second);
    assert_eq!(database.number("SELECT count(*) FROM effects WHERE note = 'an effect 1'"), 1);
    assert_eq!(database.counts(), (1, 1));
    database.assert_nothing_is_open();
}

#[test]
fn savepoints_work_as_sqlx_has_them() {
    each(Probe::new, |database, server, way| {
        assert_eq!(server.send(&send(way, "savepoint")).status, 201, "{way}");
        assert_eq!(database.counts(), (1, 1), "{way}");
        assert_eq!(database.number("SELECT count(*) FROM effects WHERE note = 'undone'"), 0, "{way}");
    });
}

/// Of each of these the client hears that it failed, and the next request runs.
fn nothing_is_committed(open: Open, body: &str, statuses: &[u16]) {
    for way in WAYS {
        let database = open(Probe::new());
        let server = database.serve();
        for run in 1..=2 {
            let answer = finished(&server, &send(way, body));
            assert!(statuses.contains(&answer.status), "{way} {body}: {}", answer.text());
            assert_eq!((database.counts(), database.probe.runs()), ((0, 0), run), "{way} {body}");
        }
        std::thread::sleep(Duration::from_millis(if body == "kept" { 400 } else { 0 }));
        database.assert_nothing_is_open();
        assert_eq!(database.counts(), (0, 0), "{way} {body}");
    }
}

#[test]
fn a_commit_that_the_database_refuses_gives_no_answer() {
    for open in BOTH {
        nothing_is_committed(open, "dangling", &[500]);
    }
}

#[test]
fn a_transaction_that_the_handler_keeps_is_rolled_back() {
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

#[test]
fn whole_messages_do_the_same() {
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
fn a_request_without_a_key_has_a_transaction_too() {
    for open in BOTH {
        let database = open(answering(|run| [201, 402, 500, 201][run - 1])());
        let server = database.serve();
        let unkeyed = |body: &str| server.send(&Request::post("/optional").user("alice").body(body));
        assert_eq!((unkeyed("one").status, database.counts()), (201, (1, 0)));
        assert_eq!((unkeyed("two").status, database.counts()), (402, (1, 0)));
        assert_eq!((unkeyed("three").status, database.counts()), (500, (1, 0)));
        assert_eq!((unkeyed("dangling").status, database.counts()), (500, (1, 0)));
        database.assert_nothing_is_open();
    }
}

/// Postgres takes a `COMMIT` of a transaction in which a statement failed for a success, and rolls it back.
#[test]
fn a_request_without_a_key_whose_statement_failed_has_no_success() {
    let database = Database::postgres(Probe::new());
    let response = database.serve().send(&Request::post("/optional").user("alice").body("failed statement"));
    assert_eq!((response.status, database.counts()), (500, (0, 0)));
    database.assert_nothing_is_open();
}

#[test]
fn what_is_put_together_wrongly_says_what_to_do() {
    tests::log::capture();
    let (sqlite, postgres) = (Database::sqlite(Probe::new()), Database::postgres(Probe::new()));
    let server = sqlite.serve();
    assert_problem(&server.send(&send("/twice", "")), 500, "misconfigured", false);
    assert_problem(&server.send(&send("/unannotated", "")), 500, "misconfigured", false);
    let (probe, memory) = (sqlite.probe.clone(), Idempotency::new(MemoryStore::new()));
    let wrong = [(memory, handlers::sqlite::all as fn(&mut _)), (postgres.idempotency(), handlers::sqlite::all)];
    for (idempotency, all) in wrong {
        let probe = probe.clone();
        let server = Server::start(move || {
            App::new().app_data(idempotency.clone()).app_data(Data::new(probe.clone())).configure(all)
        });
        for way in WAYS {
            assert_problem(&server.send(&send(way, "an effect")), 500, "misconfigured", false);
        }
    }
    assert_eq!(sqlite.probe.runs(), 0);
    let log = tests::log::captured();
    for said in [
        "takes two `Tx`",
        "without `#[idempotent]` takes a `Tx`",
        "the store has no transactions; use `SqliteStore` or `PostgresStore`",
        "of another database than the store's",
    ] {
        assert!(log.contains(said), "{said}");
    }
}

#[test]
fn no_answer_is_in_what_the_driver_logs() {
    const ANSWER: &str = "the-answer-of-a-transaction";
    tests::log::capture();
    each(
        || Probe::answering(|_| HttpResponse::Created().body(ANSWER)),
        |_, server, way| {
            let first = server.send(&send(way, "an effect"));
            assert_eq!((first.status, first.text()), (201, ANSWER));
            server.send(&send(way, "an effect")).assert_replays(&first);
        },
    );
    Database::sqlite(Probe::new()).execute("SELECT 'a statement that is logged'");
    let log = tests::log::captured();
    assert!(log.contains("a statement that is logged"));
    let hexadecimal: String = ANSWER.bytes().map(|byte| format!("{byte:02x}")).collect();
    for answer in [ANSWER, &hexadecimal] {
        assert_eq!(log.lines().find(|line| line.contains(answer)), None);
    }
}
