//! What an operation without a definitive response says.

use std::time::{Duration, UNIX_EPOCH};

use idempotent_client::{Error, ErrorKind, IdempotentRequest, Key, Outcome};
use reqwest::Body;
use reqwest_middleware::ClientBuilder;

use super::{
    client, closed, http, idempotency, received,
    scripted::{
        Line::{self, Close, Ignore, NotRun},
        Scripted, respond,
    },
    wait,
};

/// The error of an operation whose attempts follow a script, which ends before the deadline.
fn error_of(script: impl IntoIterator<Item = Line>) -> Error {
    let server = Scripted::new(script);
    let client = client(&idempotency().attempt_timeout(Duration::from_secs(2)));
    let sent = client.post(server.url()).idempotent().deadline(Duration::from_secs(20)).send();
    let error = wait(sent).unwrap_err();
    assert_eq!(server.keys().first(), error.key().map(|key| key.as_str().to_owned()).as_ref());
    error
}

#[test]
fn an_operation_that_reached_no_server_was_not_done() {
    let (_socket, url) = closed();
    let sent =
        client(&idempotency()).post(url).idempotent().deadline(Duration::from_millis(100)).send();
    let error = wait(sent).unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Deadline, Outcome::NotDone));
    assert!(error.attempts() >= 2, "{error}");
    let text = error.to_string();
    assert!(text.starts_with("the operation did not finish before its deadline ("), "{text}");
    assert!(text.ends_with(" attempts); it was not done"), "{text}");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn an_operation_that_was_refused_before_it_ran_was_not_done() {
    for code in ["overloaded", "shutting_down", "store_unavailable"] {
        let error = error_of([NotRun(503, code)]);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Deadline, Outcome::NotDone));
    }
    let error = error_of([NotRun(500, "misconfigured")]);
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Misconfigured, Outcome::NotDone));
    assert_eq!(
        error.to_string(),
        "the server is misconfigured (1 attempt, last status 500 Internal Server Error); it was \
         not done"
    );
    // An earlier attempt may have been run.
    let error = error_of([Close, NotRun(500, "misconfigured")]);
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Misconfigured, Outcome::Unknown));
}

#[test]
fn a_problem_that_anyone_may_have_sent_does_not_prove_that_nothing_was_run() {
    // A service may pass on the problem of another one, with the mark of another key.
    let mark = ("idempotency-not-run", "0123456789abcdef");
    for headers in [&[("retry-after", "60")][..], &[("retry-after", "60"), mark][..]] {
        for (status, code) in [(503, "overloaded"), (429, "overloaded"), (503, "shutting_down")] {
            let body = format!(r#"{{"type":"t","code":"{code}","retryable":true}}"#);
            let error = error_of([respond(status, headers, &body)]);
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Deadline, Outcome::Unknown));
        }
        let error = error_of([respond(425, headers, "")]);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Deadline, Outcome::Unknown));
        let body = r#"{"type":"t","code":"misconfigured","retryable":false}"#;
        let error = error_of([respond(500, headers, body)]);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Held, Outcome::Unknown));
    }
}

#[test]
fn an_operation_that_may_have_run_has_an_unknown_outcome() {
    for first in [Close, Ignore, respond(503, &[], ""), respond(409, &[("retry-after", "0")], "")] {
        let error = error_of([first, NotRun(503, "overloaded")]);
        assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
        assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    }
}

#[test]
fn a_key_that_is_held_ends_the_operation() {
    let held = r#"{"type":"t","code":"outcome_unknown","retryable":false,"reference":"pi_1"}"#;
    let error = error_of([respond(409, &[], held)]);
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Held, Outcome::Unknown));
    assert_eq!((error.reference(), error.attempts()), (Some("pi_1"), 1));
    assert_eq!(
        error.to_string(),
        "the server does not know the outcome of the operation (1 attempt, last status 409 \
         Conflict); it may have been done"
    );
}

#[test]
fn a_stream_is_refused_before_it_is_sent() {
    let server = Scripted::new([]);
    let body = Body::wrap_stream(futures_util::stream::iter([Ok::<_, std::io::Error>("part")]));
    let error = wait(client(&idempotency()).post(server.url()).idempotent().body(body).send());
    let error = error.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::StreamingBody, Outcome::NotDone));
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn an_invalid_request_is_not_sent() {
    let client = client(&idempotency());
    let error = wait(client.post("not a URL").idempotent().send()).unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Request, Outcome::NotDone));
    let error = wait(client.post("ftp://127.0.0.1/").idempotent().send()).unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Request, Outcome::NotDone));
    for key in ["", "a,b", "\"quoted\"", "two words"] {
        let server = Scripted::new([]);
        let post = || client.post(server.url()).header("Idempotency-Key", key);
        let error = wait(post().idempotent().send()).unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Request, Outcome::NotDone));
        assert!(wait(post().send()).is_err(), "{key}");
        assert_eq!(server.requests().len(), 0, "{key}");
    }
    for two in [["k-1", "k-1"], ["k-1", "k-2"]] {
        let server = Scripted::new([]);
        let post = || {
            let request = client.post(server.url()).header("Idempotency-Key", two[0]);
            request.header("Idempotency-Key", two[1])
        };
        let error = wait(post().idempotent().send()).unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Request, Outcome::Unknown));
        assert!(wait(post().send()).is_err(), "{two:?}");
        let request = client.post(server.url()).header("Idempotency-Key", two[0]).idempotent();
        let sent = wait(request.key("k-3".parse().unwrap()).send());
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::Request);
        assert_eq!(server.requests().len(), 0, "{two:?}");
    }
    let label = client.post(Scripted::new([]).url()).idempotent().label("order-17");
    let error = wait(label.send()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "there is no store of pending operations");
}

#[test]
fn a_refusal_after_an_attempt_that_may_have_run_is_not_the_outcome() {
    for status in [400, 401, 402, 404, 413, 422] {
        let error = error_of([Close, respond(status, &[], ""), respond(status, &[], "")]);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Refused, Outcome::Unknown));
        assert_eq!(error.last_status().unwrap().as_u16(), status);
        // The handler's own response is replayed.
        let replayed = [("idempotency-replayed", "true")];
        let script = [Close, respond(status, &[], "own"), respond(status, &replayed, "own")];
        let server = Scripted::new(script);
        let sent = client(&idempotency()).post(server.url()).idempotent().send();
        assert_eq!(wait(async { received(sent.await).await }), (status, "own".into()));
    }
}

#[test]
fn no_number_makes_the_client_panic() {
    let after = u64::MAX.to_string();
    let server = Scripted::new([respond(503, &[("retry-after", &after)], "")]);
    let endless = idempotency().ttl(Duration::MAX).attempt_timeout(Duration::MAX);
    let sent = client(&endless).post(server.url()).idempotent().deadline(Duration::MAX).send();
    // The pause would be endless.
    let waited = wait(async { tokio::time::timeout(Duration::from_millis(300), sent).await });
    assert!(waited.is_err() || waited.unwrap().is_err());
    let server = Scripted::new([respond(503, &[("retry-after", &after)], "")]);
    let error = wait(client(&idempotency()).post(server.url()).idempotent().send()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadline);
    // Beyond the range of numbers: not a short pause.
    let server = Scripted::new([respond(503, &[("retry-after", &"9".repeat(30))], "")]);
    let error = wait(client(&idempotency()).post(server.url()).idempotent().send()).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (ErrorKind::Deadline, 1));
    assert_eq!(server.requests().len(), 1);
}

/// A middleware around the client's, which wraps its errors as others do.
struct Wrapping;

#[derive(Debug, thiserror::Error)]
#[error("wrapped")]
struct Wrapped(#[source] reqwest_middleware::Error);

#[async_trait::async_trait]
impl reqwest_middleware::Middleware for Wrapping {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut http_1::Extensions,
        next: reqwest_middleware::Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        let sent = next.run(request, extensions).await;
        sent.map_err(|error| reqwest_middleware::Error::middleware(Wrapped(error)))
    }
}

/// A middleware around the client's, which sends each request twice.
struct Twice;

#[async_trait::async_trait]
impl reqwest_middleware::Middleware for Twice {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut http_1::Extensions,
        next: reqwest_middleware::Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        next.clone().run(request.try_clone().expect("a body"), extensions).await?;
        next.run(request, extensions).await
    }
}

#[test]
fn an_operation_that_another_middleware_sends_again_keeps_its_key() {
    let server = Scripted::new([respond(201, &[], ""), NotRun(503, "overloaded")]);
    let middleware = idempotency().deadline(Duration::from_secs(20)).middleware();
    let client = ClientBuilder::new(http()).with(Twice).with(middleware).build();
    let error = wait(client.post(server.url()).idempotent().send()).unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Deadline, Outcome::Unknown));
    let keys = server.keys();
    assert!(keys.len() == 2 && keys[0] == keys[1] && !keys[0].is_empty(), "{keys:?}");
}

#[test]
fn an_error_that_another_middleware_wraps_keeps_its_outcome() {
    let server = Scripted::new([Close, NotRun(503, "overloaded")]);
    let client = ClientBuilder::new(http())
        .with(Wrapping)
        .with(idempotency().deadline(Duration::from_secs(5)).middleware())
        .build();
    let error = wait(client.post(server.url()).idempotent().send()).unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Deadline, Outcome::Unknown));
    assert_eq!(
        (error.attempts(), error.key().map(Key::as_str)),
        (2, server.keys().first().map(String::as_str))
    );
}

#[test]
fn a_key_is_not_sent_when_the_server_may_have_forgotten_it() {
    let server = Scripted::new([]);
    let short = idempotency().ttl(Duration::from_secs(30)).attempt_timeout(Duration::from_secs(31));
    let error = wait(client(&short).post(server.url()).idempotent().send()).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (ErrorKind::Expired, 0));
    // The key was used first in another process.
    let long_ago = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let chosen = client(&idempotency()).post(server.url()).idempotent().begun_at(long_ago);
    let error = wait(chosen.key("k-1".parse().unwrap()).send()).unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Expired, Outcome::Unknown));
    assert_eq!(server.requests().len(), 0);
    // Between two attempts too.
    let server = Scripted::new([respond(503, &[("retry-after", "1")], "")]);
    let short =
        idempotency().ttl(Duration::from_millis(10_500)).attempt_timeout(Duration::from_secs(10));
    let error = wait(client(&short).post(server.url()).idempotent().send()).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (ErrorKind::Expired, 1));
    assert_eq!(error.outcome(), Outcome::Unknown);
}
