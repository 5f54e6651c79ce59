//! Responses that the store has only in part, or that only a keyring can read.

use actix_web::{HttpRequest, HttpResponse, Responder, body::BoxBody, post, web::Data};
use idempotent_actix::{
    Idempotency, idempotent,
    recording::{RecordedBody, Recording, WithoutBody},
    scope,
    store::{Contents, Keyring},
};
use test_support::{Probe, Request, TestApp, wait_for};

use super::handlers::{all, assert_problem};

const SECRET: &str = "sk_live_4242";

fn pay() -> Request {
    Request::post("/payments").user("alice").key("k").body("b")
}

fn with_secret(_: usize) -> HttpResponse {
    HttpResponse::Created()
        .insert_header(("x-token", SECRET))
        .insert_header(("x-kept", "yes"))
        .content_type("text/plain")
        .body(format!("your key is {SECRET}, shown once"))
}

/// Whether the store has the secret in the record of this payment.
fn is_stored(app: &TestApp) -> bool {
    let record = app.record("alice", "POST /payments", "k").expect("a record").record;
    let kept = Contents::of(&record).recording;
    assert!(!kept.is_empty());
    kept.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
}

#[idempotent(scope = "scope::global")]
#[post("/tokens")]
async fn create_token(probe: Data<Probe>) -> impl Responder<Body = BoxBody> {
    WithoutBody.with(probe.run().await)
}

#[test]
fn a_response_that_is_marked_is_recorded_without_its_body() {
    let app = TestApp::with(Probe::responding(with_secret), |builder| builder);
    let server = app.serve(|config| {
        config.service(create_token);
    });
    let create = || server.send(&Request::post("/tokens").key("k"));
    let first = create();
    assert!(first.text().contains(SECRET) && !first.is_replay());
    assert_eq!(first.header("idempotency-replay"), None);
    for _ in 0..2 {
        let replay = create();
        assert_eq!((replay.status, replay.body.len(), replay.is_replay()), (201, 0, true));
        assert_eq!(replay.header("idempotency-replay"), Some("omitted"));
        let headers = ["x-kept", "content-type"].map(|name| replay.header(name));
        assert_eq!(headers, [Some("yes"), Some("text/plain")]);
    }
    assert_eq!(app.probe.runs(), 1);
}

fn remove_secret(request: &HttpRequest, recording: &mut Recording) {
    assert_eq!(request.path(), "/payments");
    recording.headers.retain(|(name, _)| name != "x-token");
    let RecordedBody::Whole(body) = &mut recording.body else { return };
    let text = String::from_utf8_lossy(body).replace(SECRET, "…");
    *body = text.into_bytes().into();
    recording.status = 500;
}

#[test]
fn a_redacted_recording_says_so() {
    let app =
        TestApp::with(Probe::responding(with_secret), |builder| builder.redact(remove_secret));
    let server = app.serve(all);
    let first = server.send(&pay());
    assert!(first.text().contains(SECRET) && !first.is_replay());
    assert_eq!(first.header("x-token"), Some(SECRET));
    assert!(!is_stored(&app));
    for _ in 0..2 {
        let replay = server.send(&pay());
        assert_eq!((replay.status, replay.is_replay()), (201, true));
        assert_eq!(replay.text(), "your key is …, shown once");
        assert_eq!(replay.header("idempotency-replay"), Some("redacted"));
        assert_eq!((replay.header("x-token"), replay.header("x-kept")), (None, Some("yes")));
    }
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_redaction_that_removes_the_body_is_an_omission() {
    let app = TestApp::with(Probe::responding(with_secret), |builder| {
        builder.redact(|_, recording| {
            (recording.body, recording.headers) = (RecordedBody::Omitted, Vec::new());
        })
    });
    let server = app.serve(all);
    assert!(server.send(&pay()).text().contains(SECRET));
    assert!(!is_stored(&app));
    let replay = server.send(&pay());
    assert_eq!((replay.status, replay.body.len()), (201, 0));
    assert_eq!(replay.header("idempotency-replay"), Some("omitted"));
}

#[test]
fn a_response_that_has_nothing_to_redact_is_replayed_whole() {
    let app = TestApp::set(|builder| builder.redact(remove_secret_only));
    fn remove_secret_only(_: &HttpRequest, recording: &mut Recording) {
        recording.headers.retain(|(name, _)| name != "x-token");
    }
    let server = app.serve(all);
    let first = server.send(&pay());
    let replay = server.send(&pay());
    replay.assert_replays(&first);
    assert_eq!(replay.header("idempotency-replay"), None);
}

#[test]
fn a_redaction_that_panics_abandons_the_attempt() {
    let app = TestApp::set(|builder| builder.redact(|_, _| panic!("the redaction's panic")));
    let server = app.serve(all);
    assert_problem(&server.send(&pay()), 500, "handler_failed", true);
    assert_eq!(app.probe.runs(), 1);
}

fn keyring() -> Keyring {
    Keyring::none().with(1, &[1; 32]).unwrap()
}

#[test]
fn a_sealed_response_is_replayed_whole() {
    let app = TestApp::with(Probe::responding(with_secret), |builder| builder.encrypt(keyring()));
    let server = app.serve(all);
    let first = server.send(&pay());
    assert!(first.text().contains(SECRET));
    assert!(!is_stored(&app));
    server.send(&pay()).assert_replays(&first);
    assert_problem(&server.send(&pay().body("other")), 422, "key_reused", false);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_sealed_response_without_its_keyring_is_not_replayed_and_nothing_runs() {
    let sealed =
        TestApp::with(Probe::responding(with_secret), |builder| builder.encrypt(keyring()));
    assert_eq!(sealed.serve(all).send(&pay()).status, 201);
    for keyring in [Keyring::none(), Keyring::none().with(2, &[2; 32]).unwrap()] {
        let builder = Idempotency::builder(sealed.store.clone()).encrypt(keyring);
        let without = TestApp { idempotency: builder.build(), ..sealed.clone() };
        assert_problem(&without.serve(all).send(&pay()), 500, "record_unreadable", false);
    }
    assert_eq!(sealed.probe.runs(), 1);
}

#[test]
fn the_application_reseals_what_was_stored_before() {
    let before = TestApp::with(Probe::responding(with_secret), |builder| builder);
    let first = before.serve(all).send(&pay());
    assert!(is_stored(&before));
    let builder = Idempotency::builder(before.store.clone()).encrypt(keyring());
    let after = TestApp { idempotency: builder.build(), ..before.clone() };
    let page = wait_for("a page", after.idempotency.administrator().reseal(None)).unwrap();
    assert_eq!((page.resealed, page.next), (1, None));
    assert!(!is_stored(&before));
    after.serve(all).send(&pay()).assert_replays(&first);
    assert_eq!(before.probe.runs(), 1);
    let id = after.record("alice", "POST /payments", "k").map(|found| found.record.status);
    assert_eq!(id, Some(Some(201)), "operators do not see the status");
}
