//! Steps and notes of handlers, and what clients see of them.

use std::time::Duration;

use actix_web::{
    HttpResponse, Responder, ResponseError as _,
    error::{ErrorBadRequest, ErrorServiceUnavailable},
    post,
    web::{self, Data, ServiceConfig},
};
use idempotent_actix::{Disposition, Operation, OperationError, Reconciliation, idempotent};
use test_support::{Fault, Op, Probe, Request, TestApp, log};

use super::handlers::{User, assert_problem};

type Response = actix_web::Result<HttpResponse>;

/// A step that notes that it runs.
async fn charge(operation: &Operation, probe: &Probe, name: &str) -> actix_web::Result<String> {
    operation
        .step(name)
        .run(|key| async move {
            probe.note(format!("{name} {key}"));
            Ok("ch_1".to_owned())
        })
        .await
}

/// Charges, then responds with the probe's response, whose status 299 stands for an error.
async fn pay(operation: &Operation, probe: &Probe) -> Response {
    let charge = charge(operation, probe, "charge").await?;
    let response = probe.run().await;
    if response.status() == 299 {
        return Err(ErrorServiceUnavailable("the ledger is down"));
    }
    Ok(HttpResponse::build(response.status()).body(charge))
}

#[idempotent(scope = "_user")]
#[post("/steps")]
async fn steps(_user: User, operation: Operation, probe: Data<Probe>) -> Response {
    pay(&operation, &probe).await
}

#[idempotent(scope = "_user")]
#[post("/renamed")]
async fn renamed(_user: User, operation: Operation, probe: Data<Probe>) -> Response {
    let first = if probe.runs() == 0 { "charge" } else { "capture" };
    charge(&operation, &probe, first).await?;
    probe.run().await;
    Err(ErrorServiceUnavailable("again"))
}

/// What runs before the point of no return, and after it.
#[idempotent(scope = "_user", abandoned = "retry_then_hold")]
#[post("/hold_late")]
async fn hold_late(
    _user: User,
    operation: Operation,
    probe: Data<Probe>,
    body: String,
) -> Response {
    if body == "before" && probe.runs() == 0 {
        probe.run().await;
        return Err(ErrorServiceUnavailable("the database is down"));
    }
    operation.set_reference("pi_1").await?;
    operation.point_of_no_return().await?;
    probe.run().await;
    Err(ErrorServiceUnavailable("the bank did not respond"))
}

/// A handler that reports that nothing was done, though a step was.
#[idempotent(scope = "_user", abandoned = "hold")]
#[post("/retryable_after_a_step")]
async fn retryable_after_a_step(
    _user: User,
    operation: Operation,
    probe: Data<Probe>,
) -> actix_web::Result<impl Responder> {
    charge(&operation, &probe, "charge").await?;
    Ok(Disposition::Retryable.with(HttpResponse::ServiceUnavailable()))
}

/// The same, where the point of no return is implied by a step.
#[idempotent(scope = "_user", abandoned = "retry_then_hold")]
#[post("/hold_after_step")]
async fn hold_after_step(
    _user: User,
    operation: Operation,
    probe: Data<Probe>,
    body: String,
) -> Response {
    if body == "before" && probe.run().await.status() == 503 {
        panic!("before the effect");
    }
    let charged: actix_web::Result<u32> = operation
        .step("charge")
        .run(|_| async { Err(ErrorServiceUnavailable("the bank did not respond")) })
        .await;
    charged.map(|_| HttpResponse::Ok().finish())
}

/// A handler whose rule has no point of no return.
#[idempotent(scope = "_user", abandoned = "hold")]
#[post("/no_point")]
async fn no_point(_user: User, operation: Operation, probe: Data<Probe>) -> Response {
    operation.point_of_no_return().await?;
    Ok(probe.run().await)
}

/// The application's own `Operation`, with the words of ours in the handler's body.
mod ours {
    #[derive(serde::Deserialize)]
    pub(super) struct Operation {
        pub(super) step: u32,
        pub(super) point_of_no_return: bool,
    }
}

#[idempotent(scope = "_user", abandoned = "hold")]
#[post("/namesake")]
async fn namesake(
    _user: User,
    operation: web::Json<ours::Operation>,
    probe: Data<Probe>,
) -> Response {
    assert!(operation.step == 1 && !operation.point_of_no_return);
    probe.run().await;
    panic!("after the effect");
}

/// The bank does not know what an earlier attempt has done.
#[idempotent(scope = "_user")]
#[post("/unknown")]
async fn unknown(_user: User, operation: Operation, probe: Data<Probe>) -> Response {
    if !operation.recovering()? {
        operation.set_reference("pi_1").await?;
    }
    let run = operation
        .step("charge")
        .reconcile(|_| async { Ok(Reconciliation::Unknown) })
        .run(|_| async { Ok::<_, actix_web::Error>(probe.run().await.status().as_u16()) })
        .await?;
    Err(ErrorServiceUnavailable(run.to_string()))
}

fn services(config: &mut ServiceConfig) {
    config.service(unknown).service(retryable_after_a_step);
    config.service(steps).service(renamed).service(hold_late).service(hold_after_step);
    config.service(no_point).service(namesake);
}

fn request(path: &str, body: &str) -> Request {
    Request::post(path).user("alice").key("k").body(body)
}

/// An application whose first run responds with `first`, and whose others respond with 201.
fn first_responds(first: u16) -> TestApp {
    TestApp::responding(move |run| {
        let status = if run == 1 { first } else { 201 };
        HttpResponse::build(actix_web::http::StatusCode::from_u16(status).unwrap()).finish()
    })
}

#[test]
fn a_step_that_is_done_is_not_repeated_after_a_failure() {
    for (first, status) in [(503, 503), (299, 503)] {
        let app = first_responds(first);
        let server = app.serve(services);
        assert_eq!(server.send(&request("/steps", "b")).status, status);
        let second = server.send(&request("/steps", "b"));
        assert_eq!((second.status, second.text()), (201, "ch_1"));
        server.send(&request("/steps", "b")).assert_replays(&second);
        let derived = TestApp::id("alice", "POST /steps", "k").derive_key("charge");
        assert_eq!(app.probe.notes(), [format!("charge {derived}")]);
    }
}

#[test]
fn a_renamed_step_is_an_internal_error_until_its_name_is_back() {
    let app = first_responds(503);
    let server = app.serve(services);
    assert_eq!(server.send(&request("/renamed", "b")).status, 503);
    for _ in 0..2 {
        let failed = server.send(&request("/renamed", "b"));
        assert_problem(&failed, 500, "handler_failed", true);
        assert!(!failed.text().contains("capture"), "{}", failed.text());
    }
    assert!(log::captured().contains("the step `capture` was not recorded, but `charge` was"));
    assert_eq!((app.probe.runs(), app.probe.notes().len()), (1, 1));
}

#[test]
fn what_fails_before_the_point_of_no_return_may_be_tried_again() {
    let app = TestApp::new();
    let server = app.serve(services);
    assert_eq!(server.send(&request("/hold_late", "before")).status, 503);
    assert_eq!(server.send(&request("/hold_late", "before")).status, 503);
    let held = server.send(&request("/hold_late", "before"));
    assert_eq!(held.problem(), (409, "outcome_unknown".to_owned()));
    assert_eq!(held.json()["reference"], "pi_1");
    assert_eq!(app.probe.runs(), 2);
}

#[test]
fn a_panic_before_the_first_step_releases_and_a_failure_in_it_holds() {
    let app = first_responds(503);
    let server = app.serve(services);
    assert_problem(
        &server.send(&request("/hold_after_step", "before")),
        500,
        "handler_failed",
        true,
    );
    assert_eq!(server.send(&request("/hold_after_step", "before")).status, 503);
    assert_problem(
        &server.send(&request("/hold_after_step", "before")),
        409,
        "outcome_unknown",
        false,
    );
}

#[test]
fn a_key_that_is_held_in_place_of_its_release_is_logged() {
    let app = TestApp::new();
    let server = app.serve(services);
    let request = Request::post("/retryable_after_a_step").user("alice").key("held-after-a-step");
    assert_eq!(server.send(&request).status, 503);
    assert_problem(&server.send(&request), 409, "outcome_unknown", false);
    let id = TestApp::id("alice", "POST /retryable_after_a_step", "held-after-a-step").short();
    let held = format!("its key is held until it is resolved id={id}");
    assert!(log::captured().contains(&held), "{held}");
}

#[test]
fn a_point_of_no_return_under_another_rule_is_an_error_that_names_the_rule() {
    let app = TestApp::new();
    let server = app.serve(services);
    let refused = server.send(&request("/no_point", "b"));
    assert_problem(&refused, 500, "handler_failed", false);
    assert!(!refused.text().contains("retry_then_hold"), "{}", refused.text());
    assert!(log::captured().contains("needs the rule `abandoned = \"retry_then_hold\"`"));
    assert_eq!((app.probe.runs(), app.store.calls(Op::Note)), (0, 0));
}

#[test]
fn words_in_a_handler_do_not_weaken_hold() {
    let app = TestApp::new();
    let server = app.serve(services);
    let request = request("/namesake", r#"{"step":1,"point_of_no_return":false}"#)
        .header("content-type", "application/json");
    assert_problem(&server.send(&request), 500, "handler_failed", false);
    for _ in 0..2 {
        assert_problem(&server.send(&request), 409, "outcome_unknown", false);
    }
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_step_that_cannot_be_recorded_fails_the_request_and_is_done_again() {
    let app = TestApp::new();
    let server = app.serve(services);
    app.store.fail(Op::Note, 2, Fault::Before);
    assert_problem(&server.send(&request("/steps", "b")), 503, "store_unavailable", true);
    assert_eq!(server.send(&request("/steps", "b")).status, 201);
    let notes = app.probe.notes();
    assert_eq!(notes.len(), 2, "the bank gets the same key twice");
    assert_eq!(notes[0], notes[1]);
}

#[test]
fn an_attempt_that_cannot_find_out_what_was_done_holds_the_key_and_shows_the_reference() {
    let app = TestApp::responding(|_| panic!("after the charge"));
    let server = app.serve(services);
    assert_problem(&server.send(&request("/unknown", "b")), 500, "handler_failed", true);
    for _ in 0..2 {
        let held = server.send(&request("/unknown", "b"));
        assert_eq!(held.problem(), (409, "outcome_unknown".to_owned()));
        assert_eq!((&held.json()["reference"], held.header("retry-after")), (&"pi_1".into(), None));
    }
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_handler_that_was_fenced_gets_the_response_of_its_successor() {
    let app = TestApp::new();
    let server = app.serve(services);
    app.probe.hold();
    let first = server.begin(&request("/steps", "b"));
    app.probe.await_runs(1);
    app.advance(Duration::from_secs(30));
    let second = server.begin(&request("/steps", "b"));
    app.probe.await_runs(2);
    app.probe.release(2);
    let second = second.response();
    app.probe.release(1);
    first.response().assert_replays(&second);
    assert_eq!(app.probe.notes().len(), 1, "the second attempt got the recorded step");
}

#[test]
fn conflicts_show_the_reference_and_a_reused_key_does_not() {
    let app = TestApp::new();
    let server = app.serve(services);
    app.probe.hold();
    let first = server.begin(&request("/hold_late", "b"));
    app.probe.await_runs(1);
    let refused = server.send(&request("/hold_late", "b"));
    assert_eq!(refused.problem(), (409, "in_flight".to_owned()));
    assert_eq!(refused.json()["reference"], "pi_1");
    let reused = server.send(&request("/hold_late", "other"));
    assert_problem(&reused, 422, "key_reused", false);
    app.probe.release_all();
    assert_eq!(first.response().status, 503);
}

#[test]
fn the_error_of_an_operation_is_a_response() {
    let error = |cause| OperationError::from(cause).status_code().as_u16();
    use idempotent_core::runtime::NoteError as Cause;
    assert_eq!(error(Cause::OutcomeUnknown), 409);
    assert_eq!(error(Cause::TransactionOpen), 500);
    let error: actix_web::Error = OperationError::from(Cause::Fenced).into();
    assert!(error.to_string().contains("another attempt has taken over"));
    assert!(ErrorBadRequest("x").to_string().contains('x'));
}
