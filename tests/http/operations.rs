//! What a handler can read about its operation, and what middleware can read about a response.

use std::time::Duration;

use actix_web::{
    App, FromRequest, HttpRequest, HttpResponse,
    dev::{Payload, Service},
    post,
    web::{Data, ServiceConfig},
};
use futures_util::future::{FutureExt as _, LocalBoxFuture};
use idempotent_actix::{Operation, OperationError, RecordId, RequestOutcome, idempotent};
use idempotent_core::runtime::NoteError;
use test_support::{Probe, Request, Server, TestApp, log};

use super::handlers::{User, all, assert_problem};

#[idempotent(scope = "user")]
#[post("/operations")]
async fn operate(user: User, operation: Operation, probe: Data<Probe>) -> HttpResponse {
    probe.note(describe(&user, &operation));
    probe.run().await
}

#[idempotent(scope = "user", key = "optional")]
#[post("/maybe")]
async fn maybe(user: User, operation: Option<Operation>, probe: Data<Probe>) -> HttpResponse {
    probe.note(operation.map_or("none".into(), |operation| describe(&user, &operation)));
    probe.run().await
}

#[idempotent(scope = "user", key = "optional")]
#[post("/required_operation")]
async fn required_operation(user: User, operation: Operation, probe: Data<Probe>) -> HttpResponse {
    probe.note(describe(&user, &operation));
    probe.run().await
}

#[post("/unguarded")]
async fn unguarded(operation: Operation) -> HttpResponse {
    HttpResponse::Ok().body(operation.key().unwrap().as_str().to_owned())
}

/// An extractor that uses the operation, which is claimed later.
struct Early(String);

impl FromRequest for Early {
    type Error = actix_web::Error;
    type Future = LocalBoxFuture<'static, Result<Self, Self::Error>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let fails = request.query_string() == "fails";
        let operation = Operation::from_request(request, payload);
        async move {
            let operation = operation.await?;
            let step = operation.step("step").run(async |_| Ok::<_, OperationError>(1_u8));
            let refused = [
                operation.id().map(drop),
                operation.attempt().map(drop),
                operation.recovering().map(drop),
                operation.derive_key("label").map(drop),
                operation.set_input("input"),
                operation.set_reference("reference").await,
                operation.progress("progress").await,
                operation.point_of_no_return().await,
                step.await.map(drop),
            ];
            for call in refused {
                let error = call.unwrap_err();
                assert!(matches!(error.cause(), NoteError::NotClaimed), "{error}");
                if fails {
                    return Err(error.into());
                }
            }
            Ok(Self(operation.key().unwrap().as_str().to_owned()))
        }
        .boxed_local()
    }
}

#[idempotent(scope = "user")]
#[post("/early")]
async fn early(user: User, early: Early, operation: Operation, probe: Data<Probe>) -> HttpResponse {
    probe.note(format!("{} {} {}", user.0, early.0, operation.attempt().unwrap()));
    probe.run().await
}

fn describe(user: &User, operation: &Operation) -> String {
    let (key, id) = (operation.key().unwrap().as_str(), operation.id().unwrap());
    let (charge, refund) =
        ["charge", "refund"].map(|label| operation.derive_key(label).unwrap()).into();
    assert_eq!(charge.as_uuid().get_version_num(), 8);
    format!("{} {key} {id} {} {charge} {refund}", user.0, operation.attempt().unwrap())
}

fn services(config: &mut ServiceConfig) {
    config.service(operate).service(maybe).service(required_operation).service(unguarded);
    config.service(early);
}

/// The words of a note: user, key, record id, attempt, and two derived keys.
fn words(note: &str) -> [&str; 6] {
    note.split(' ').collect::<Vec<_>>().try_into().unwrap()
}

#[test]
fn a_takeover_changes_only_the_attempt_of_an_operation() {
    let app = TestApp::new();
    let server = app.serve(services);
    let request = Request::post("/operations").user("alice").key("\"the-key\"");
    app.probe.hold();
    let first = server.begin(&request);
    app.probe.await_runs(1);
    app.advance(Duration::from_secs(30));
    let second = server.begin(&request);
    app.probe.await_runs(2);
    app.probe.release(2);
    let second = second.response();
    app.probe.release(1);
    first.response().assert_replays(&second);
    let notes = app.probe.notes();
    let [[user, key, id, attempt, charge, refund], second] = [words(&notes[0]), words(&notes[1])];
    assert_eq!((user, key, attempt), ("alice", "the-key", "1"));
    assert_eq!(second, [user, key, id, "2", charge, refund]);
    assert_ne!(charge, refund);
    let expected = TestApp::id("alice", "POST /operations", "the-key");
    assert_eq!((id, charge), (&*expected.to_string(), &*expected.derive_key("charge").to_string()));
}

#[test]
fn derived_keys_differ_by_user_and_key() {
    let app = TestApp::new();
    let server = app.serve(services);
    for (user, key) in [("alice", "k1"), ("alice", "k2"), ("bob", "k1")] {
        assert_eq!(server.send(&Request::post("/operations").user(user).key(key)).status, 201);
    }
    let notes = app.probe.notes();
    let charges: std::collections::HashSet<_> = notes.iter().map(|note| words(note)[4]).collect();
    assert_eq!(charges.len(), 3);
}

#[test]
fn in_an_extractor_an_operation_has_only_its_key() {
    let app = TestApp::new();
    let server = app.serve(services);
    let request = |target| Request::post(target).user("alice").key("k");
    assert_problem(&server.send(&request("/early?fails")), 500, "handler_failed", true);
    assert_eq!(server.send(&request("/early")).status, 201);
    assert_eq!(app.probe.notes(), ["alice k 1"]);
}

#[test]
fn without_a_key_there_is_no_operation() {
    let app = TestApp::new();
    let server = app.serve(services);
    assert_eq!(server.send(&Request::post("/maybe").user("alice")).status, 201);
    assert_eq!(server.send(&Request::post("/maybe").user("alice").key("k")).status, 201);
    let notes = app.probe.notes();
    assert_eq!(notes[0], "none");
    assert_eq!(words(&notes[1])[..2], ["alice", "k"]);
    for target in ["/required_operation", "/unguarded"] {
        assert_problem(
            &server.send(&Request::post(target).user("alice")),
            400,
            "key_missing",
            false,
        );
    }
    assert_eq!(app.probe.runs(), 2);
    assert_eq!(
        server.send(&Request::post("/required_operation").user("alice").key("k")).status,
        201
    );
}

/// A server whose outermost middleware notes the outcome and the record id of each response.
fn serve_observed(app: &TestApp) -> Server {
    let (setup, probe) = (app.setup(), app.probe.clone());
    Server::start(move || {
        let probe = probe.clone();
        App::new().configure(&setup).configure(all).wrap_fn(move |request, service| {
            let (probe, response) = (probe.clone(), service.call(request));
            async move {
                let response = response.await?;
                let extensions = response.response().extensions();
                let outcome = extensions.get::<RequestOutcome>().map(RequestOutcome::to_string);
                let id = extensions.get::<RecordId>().map(|id| id.short().to_string());
                probe.note(format!(
                    "{} {}",
                    outcome.unwrap_or("-".into()),
                    id.unwrap_or("-".into())
                ));
                drop(extensions);
                Ok(response)
            }
        })
    })
}

#[test]
fn middleware_sees_the_outcome_of_each_request() {
    let app = TestApp::responding(|run| {
        assert!(run != 2, "the handler panics");
        HttpResponse::Created().finish()
    });
    let server = serve_observed(&app);
    let pay = |key: &str| Request::post("/payments").user("alice").key(key).body("b");
    let hold_if_abandoned = Request::post("/hold_if_abandoned").user("alice").key("k");
    for (request, status) in [
        (pay("k"), 201),
        (pay("k"), 201),
        (pay("k").body("other"), 422),
        (pay(""), 400),
        (hold_if_abandoned.clone(), 500),
        (hold_if_abandoned, 409),
        (Request::post("/payments").key("k"), 401),
        (Request::new("GET", "/elsewhere").key("k"), 404),
    ] {
        assert_eq!(server.send(&request).status, status);
    }
    app.probe.hold();
    let held = server.begin(&pay("k2"));
    app.probe.await_runs(3);
    assert_eq!(server.send(&pay("k2")).status, 409);
    app.probe.release_all();
    assert_eq!(held.response().status, 201);
    app.store.fail(test_support::Op::Claim, 2, test_support::Fault::Before);
    assert_eq!(server.send(&pay("k3")).status, 503);
    let id = |operation, key| TestApp::id("alice", operation, key).short().to_string();
    let (k, held) = (id("POST /payments", "k"), id("POST /hold_if_abandoned", "k"));
    let (k2, k3) = (id("POST /payments", "k2"), id("POST /payments", "k3"));
    let mut notes = app.probe.notes();
    notes.retain(|note| note != "alice");
    let expected = [
        format!("ran {k}"),
        format!("replayed {k}"),
        format!("key_reused {k}"),
        "refused -".into(),
        format!("handler_failed {held}"),
        format!("outcome_unknown {held}"),
        "- -".into(),
        "- -".into(),
        format!("in_flight {k2}"),
        format!("ran {k2}"),
        format!("unavailable {k3}"),
    ];
    assert_eq!(notes, expected);
}

/// When a key becomes held, the request has a separate outcome and the log one line, so that
/// operators can be notified.
#[test]
fn a_key_that_becomes_held_is_an_outcome_and_a_log_line() {
    log::capture();
    let app = TestApp::responding(|run| match run {
        1 => HttpResponse::InternalServerError().finish(),
        _ => HttpResponse::Created().finish(),
    });
    let server = serve_observed(&app);
    let hold_if_abandoned = |key: &str| Request::post("/hold_if_abandoned").user("alice").key(key);
    let statuses =
        ["unknown", "unknown", "unknown"].map(|key| server.send(&hold_if_abandoned(key)).status);
    assert_eq!(statuses, [500, 409, 409]);
    app.probe.hold();
    let expiring = server.begin(&hold_if_abandoned("expiring"));
    app.probe.await_runs(2);
    app.advance(Duration::from_secs(3600));
    let statuses = ["expiring", "expiring"].map(|key| server.send(&hold_if_abandoned(key)).status);
    assert_eq!(statuses, [409, 409]);
    drop(expiring);
    let id = |key| TestApp::id("alice", "POST /hold_if_abandoned", key).short().to_string();
    let (unknown, expired) = (id("unknown"), id("expiring"));
    let mut notes = app.probe.notes();
    notes.retain(|note| note != "alice");
    let expected = [
        format!("became_held {unknown}"),
        format!("outcome_unknown {unknown}"),
        format!("outcome_unknown {unknown}"),
        format!("became_held {expired}"),
        format!("outcome_unknown {expired}"),
    ];
    assert_eq!(notes, expected);
    let log = log::captured();
    for id in [unknown, expired] {
        let lines = log
            .lines()
            .filter(|line| line.contains(&id) && line.contains("is held until it is resolved"));
        assert_eq!(lines.count(), 1, "{id}:\n{log}");
    }
}
