//! Abandoned operations that are finished without their clients.

use std::{future::pending, time::Duration};

use actix_web::{
    HttpResponse, post,
    rt::System,
    web::{Data, ServiceConfig},
};
use idempotent_actix::{Completer, Operation, idempotent};
use idempotent_core::{
    Abandoned, Digester, Policy, RecordId, Runtime,
    runtime::{Admission, NoteError, RuntimeOptions, Subject},
};
use test_support::{Fault, Op, Probe, Request, TestApp, log};

use super::handlers::{User, assert_problem};

mod stuck;

type Response = actix_web::Result<HttpResponse>;

#[idempotent(scope = "_user")]
#[post("/orders")]
async fn order(_user: User, operation: Operation, probe: Data<Probe>, body: String) -> Response {
    operation.set_input(&body)?;
    finish(operation, probe.get_ref().clone(), body).await
}

#[idempotent(scope = "_user")]
#[post("/without_input")]
async fn without_input(
    _user: User,
    operation: Operation,
    probe: Data<Probe>,
    body: String,
) -> Response {
    finish(operation, probe.get_ref().clone(), body).await
}

#[idempotent(scope = "_user", name = "held orders", abandoned = "hold")]
#[post("/held_orders")]
async fn held_order(
    _user: User,
    operation: Operation,
    probe: Data<Probe>,
    body: String,
) -> Response {
    operation.set_input(&body)?;
    let charged = operation.step("charge").run(|_| async { Ok::<_, actix_web::Error>(1) });
    charged.await?;
    Ok(probe.run().await)
}

async fn finish(operation: Operation, probe: Probe, body: String) -> Response {
    let charge = operation.step("charge").run(|key| {
        probe.note(format!("charge {body} with {key}"));
        async { Ok::<_, actix_web::Error>("ch_1".to_owned()) }
    });
    let charge = charge.await?;
    let response = probe.run().await;
    Ok(HttpResponse::build(response.status()).body(charge))
}

fn services(config: &mut ServiceConfig) {
    config.service(order).service(without_input).service(held_order);
}

fn request(path: &str) -> Request {
    Request::post(path).user("alice").key("k").body("a book")
}

/// An application whose first run panics.
fn first_run_panics() -> TestApp {
    TestApp::responding(|run| {
        assert!(run > 1, "after the charge");
        HttpResponse::Created().finish()
    })
}

fn completer(app: &TestApp) -> Completer {
    let (orders, held) = (app.probe.clone(), app.probe.clone());
    let completer = app.idempotency.completer();
    let completer = completer
        .resume("POST /orders", move |operation, body| finish(operation, orders.clone(), body));
    let completer = completer
        .resume("held orders", move |operation, body| finish(operation, held.clone(), body));
    let probe = app.probe.clone();
    completer.resume("POST /without_input", move |operation, body| {
        finish(operation, probe.clone(), body)
    })
}

/// Runs one pass, and returns how many operations it has resumed.
fn pass(app: &TestApp) -> usize {
    System::new().block_on(completer(app).pass()).unwrap()
}

#[test]
fn an_operation_is_finished_without_its_client() {
    let app = first_run_panics();
    let server = app.serve(services);
    assert_problem(&server.send(&request("/orders")), 500, "handler_failed", true);
    assert_eq!(pass(&app), 1);
    assert_eq!((app.probe.runs(), app.probe.notes().len()), (2, 1), "the charge is not repeated");
    let record = app.record("alice", "POST /orders", "k").unwrap().record;
    assert_eq!((record.status, record.attempt), (Some(201), 2));
    assert!(record.notes.input.is_empty() && record.notes.steps.is_empty());
    let response = server.send(&request("/orders"));
    assert_eq!((response.status, response.text(), response.is_replay()), (201, "ch_1", true));
    assert_eq!((pass(&app), app.probe.runs()), (0, 2));
}

#[test]
fn an_operation_that_fails_again_is_resumed_again() {
    let app = TestApp::responding(|run| match run {
        1 => panic!("after the charge"),
        2 => HttpResponse::ServiceUnavailable().finish(),
        _ => HttpResponse::Created().finish(),
    });
    let server = app.serve(services);
    assert_eq!(server.send(&request("/orders")).status, 500);
    assert_eq!((pass(&app), pass(&app), pass(&app)), (1, 1, 0));
    assert!(server.send(&request("/orders")).is_replay());
    assert_eq!(app.probe.notes().len(), 1);
}

#[test]
fn an_operation_is_resumed_when_its_lease_has_expired_and_by_one_completer() {
    let app = TestApp::new();
    let server = app.serve(services);
    app.probe.hold();
    let first = server.begin(&request("/orders"));
    app.probe.await_runs(1);
    assert_eq!(pass(&app), 0, "its owner is alive");
    app.advance(Duration::from_secs(30));
    let resumed = std::thread::scope(|scope| {
        let passes = [(), ()].map(|()| scope.spawn(|| pass(&app)));
        app.probe.await_runs(2);
        assert_problem(&server.send(&request("/orders")), 409, "in_flight", true);
        app.probe.release(2);
        passes.map(|pass| pass.join().unwrap()).iter().sum::<usize>()
    });
    assert_eq!(resumed, 1);
    app.probe.release_all();
    let first = first.response();
    assert!(first.is_replay(), "the first attempt is fenced");
    assert_eq!((app.probe.runs(), app.probe.notes().len()), (2, 1));
}

#[test]
fn what_cannot_be_resumed_is_left_alone() {
    let app = first_run_panics();
    let server = app.serve(services);
    assert_eq!(server.send(&request("/without_input")).status, 500);
    assert_eq!(pass(&app), 0, "it has no input");
    let app = first_run_panics();
    let server = app.serve(services);
    assert_eq!(server.send(&request("/held_orders")).status, 500);
    assert_eq!(pass(&app), 0, "it is held");
    assert_problem(&server.send(&request("/held_orders")), 409, "outcome_unknown", false);
}

#[test]
fn an_input_of_another_type_is_not_claimed() {
    let app = first_run_panics();
    let server = app.serve(services);
    assert_eq!(server.send(&request("/orders")).status, 500);
    let work = |_: Operation, _: u32| async { HttpResponse::Ok().finish() };
    let resumed = System::new().block_on(async {
        app.idempotency.completer().resume("POST /orders", work).pass().await.unwrap()
    });
    assert_eq!(resumed, 0);
    assert!(log::captured().contains("the input of an operation cannot be read"));
    assert_eq!(app.record("alice", "POST /orders", "k").unwrap().record.attempt, 1);
}

#[test]
fn a_function_gets_the_values_of_its_extractors() {
    let app = first_run_panics();
    let server = app.serve(services);
    assert_eq!(server.send(&request("/orders")).status, 500);
    let completer = || {
        let work = |operation: Operation, probe: Data<Probe>, body| {
            finish(operation, probe.get_ref().clone(), body)
        };
        app.idempotency.completer().resume_with("POST /orders", work)
    };
    let record = || app.record("alice", "POST /orders", "k").unwrap().record;
    // The extractor fails, so the operation is not finished.
    assert_eq!(System::new().block_on(completer().pass()).unwrap(), 1);
    assert_eq!((record().status, record().attempt, app.probe.runs()), (None, 2, 1));
    let completer = completer().app_data(Data::new(app.probe.clone()));
    assert_eq!(System::new().block_on(completer.pass()).unwrap(), 1);
    assert_eq!((record().status, record().attempt, app.probe.runs()), (Some(201), 3, 2));
}

#[test]
fn a_pass_fails_only_if_nothing_can_be_found() {
    let app = first_run_panics();
    let server = app.serve(services);
    assert_eq!(server.send(&request("/orders")).status, 500);
    app.store.fail(Op::Resumable, 1, Fault::Before);
    let failed = System::new().block_on(completer(&app).pass());
    assert!(failed.unwrap_err().is_transient());
    app.store.fail(Op::LookUp, 1, Fault::Before);
    assert_eq!(pass(&app), 0);
    app.store.fail(Op::Claim, 2, Fault::Before);
    assert_eq!(pass(&app), 0);
    assert_eq!(pass(&app), 1);
}

#[test]
fn the_key_of_a_resumed_operation_is_unknown() {
    let app = first_run_panics();
    let server = app.serve(services);
    assert_eq!(server.send(&request("/orders")).status, 500);
    let work = |operation: Operation, _: String| async move {
        HttpResponse::Ok().body(format!("{:?}", operation.key()))
    };
    let resumed = System::new().block_on(async {
        app.idempotency.completer().resume("POST /orders", work).pass().await.unwrap()
    });
    assert_eq!(resumed, 1);
    let record = app.record("alice", "POST /orders", "k").unwrap().record;
    assert_eq!((record.status, record.attempt), (Some(200), 2));
    assert_eq!(server.send(&request("/orders")).text(), "None");
}

/// Abandons operations of another program, whose record has this name, in the same store.
async fn abandon_others(app: &TestApp, operation: &str, seed: u8) {
    let runtime = Runtime::new(app.store.clone(), RuntimeOptions::default());
    let digest = Digester::new(["POST", "/"]).finish();
    for number in 0..1_000_u16 {
        let [high, low] = number.to_be_bytes();
        // Half of the ids are low and half are high.
        let mut id = [seed; 32];
        (id[0], id[1]) = (if low % 2 == 0 { 0 } else { 255 }, high);
        id[2] = low;
        let subject = Subject::new(RecordId::from_bytes(id)).with_operation(operation);
        let begun = runtime.begin(subject, digest, &Policy::DEFAULT).await.unwrap();
        let Admission::Proceed(attempt) = begun else { panic!("{begun:?}") };
        let operation = attempt.operation().clone();
        operation.set_input_in("another program", "a book").unwrap();
        let step = operation.step("charge").run(|_| async { Ok::<_, NoteError>(1) });
        step.await.unwrap();
        attempt.abandon(Abandoned::Retry).await;
    }
}

#[test]
fn operations_of_other_programs_in_the_store_hide_none_and_are_not_resumed() {
    let app = first_run_panics();
    let server = app.serve(services);
    let others = async {
        abandon_others(&app, "POST /of_another_program", 1).await;
        abandon_others(&app, "POST /orders", 2).await;
    };
    System::new().block_on(others);
    assert_eq!(server.send(&request("/orders")).status, 500);
    assert_eq!((pass(&app), app.probe.runs()), (1, 2));
    assert!(server.send(&request("/orders")).is_replay());
    assert_eq!(pass(&app), 0);
}

#[test]
fn an_operation_that_hangs_does_not_stop_the_others() {
    let app = TestApp::responding(|_| panic!("after the charge"));
    let server = app.serve(services);
    for number in 0..6 {
        let request = Request::post("/orders").user("alice").key(format!("k{number}"));
        let body = if number < 5 { "hangs" } else { "a book" };
        assert_eq!(server.send(&request.body(body)).status, 500);
    }
    let work = |_: Operation, body: String| async move {
        if body == "hangs" {
            pending::<()>().await;
        }
        HttpResponse::Ok().body(body)
    };
    let completer = app.idempotency.completer().resume("POST /orders", work);
    let completer = completer.time_limit(Duration::from_millis(50));
    assert_eq!(System::new().block_on(completer.pass()).unwrap(), 6);
    let request = Request::post("/orders").user("alice").key("k5").body("a book");
    let response = server.send(&request);
    assert_eq!((response.text(), response.is_replay()), ("a book", true));
    assert!(log::captured().contains("a resumed operation exceeded its time limit"));
}

#[idempotent(scope = "_user")]
#[post("/exact")]
async fn short_first(_user: User, operation: Operation) -> Response {
    fail_after_input(operation).await
}

#[idempotent(scope = "_user", record = "all")]
#[post("/v1/exact")]
async fn long_last(_user: User, operation: Operation) -> Response {
    fail_after_input(operation).await
}

#[idempotent(scope = "_user", record = "all")]
#[post("/v2/precise")]
async fn long_first(_user: User, operation: Operation) -> Response {
    fail_after_input(operation).await
}

#[idempotent(scope = "_user")]
#[post("/precise")]
async fn short_last(_user: User, operation: Operation) -> Response {
    fail_after_input(operation).await
}

async fn fail_after_input(operation: Operation) -> Response {
    operation.set_input("input")?;
    operation.step("charge").run(|_| async { Ok::<_, actix_web::Error>(1) }).await?;
    panic!("after the charge")
}

#[test]
fn the_rules_are_those_of_the_handler_with_exactly_this_name() {
    for path in ["/v1/exact", "/v2/precise"] {
        let app = TestApp::new();
        let server = app.serve(|config: &mut ServiceConfig| {
            config.service(short_first).service(long_last).service(long_first).service(short_last);
        });
        assert_eq!(server.send(&request(path)).status, 500);
        let name = format!("POST {path}");
        let work = |_: Operation, _: String| async { HttpResponse::InternalServerError().finish() };
        let completer = app.idempotency.completer().resume(&name, work);
        assert_eq!(System::new().block_on(completer.pass()).unwrap(), 1);
        let record = app.record("alice", &name, "k").unwrap().record;
        assert_eq!(record.status, Some(500), "{name}: the other handler does not record it");
    }
}

#[test]
fn a_name_that_no_handler_or_more_than_one_may_have_is_reported() {
    let app = TestApp::new();
    let work = |_: Operation, _: String| async { HttpResponse::Ok().finish() };
    for (name, reasons) in [
        ("of nobody", vec!["no annotated handler has this name"]),
        ("POST /v3/v1/exact", vec!["short_first", "long_last", "may have this name"]),
    ] {
        let completer = app.idempotency.completer().resume(name, work);
        assert_eq!(System::new().block_on(completer.pass()).unwrap(), 0);
        let log = log::captured();
        let line = log.lines().find(|line| line.contains(name)).expect("a line");
        assert!(reasons.iter().all(|reason| line.contains(reason)), "{line}");
    }
}
