//! What an operation without a definitive response says.

use std::{net::TcpListener, time::Duration};

use idempotent_client::{Error, ErrorKind, IdempotentRequest, Outcome};
use reqwest::{Body, Url};

use super::{
    client, idempotency,
    scripted::{
        Line::{self, Close, Ignore},
        Scripted, respond,
    },
    wait,
};

/// The error of an operation whose attempts follow a script, with a short deadline.
fn error_of(script: impl IntoIterator<Item = Line>) -> Error {
    let server = Scripted::new(script);
    let client = client(&idempotency().attempt_timeout(Duration::from_millis(200)));
    let sent = client.post(server.url()).idempotent().deadline(Duration::from_millis(400)).send();
    let error = wait(sent).unwrap_err();
    assert_eq!(server.keys().first(), error.key().map(|key| key.as_str().to_owned()).as_ref());
    error
}

#[test]
fn an_operation_that_reached_no_server_was_not_done() {
    // Nobody listens on this port any more.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url: Url = format!("http://{address}/orders").parse().unwrap();
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
    let error = error_of([respond(429, &[("retry-after", "60")], "")]);
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Deadline, Outcome::NotDone));
    let overloaded = r#"{"type":"t","code":"overloaded","retryable":true}"#;
    let error = error_of([respond(503, &[("retry-after", "60")], overloaded)]);
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Deadline, Outcome::NotDone));
}

#[test]
fn an_operation_that_may_have_run_has_an_unknown_outcome() {
    for first in [Close, Ignore, respond(503, &[], ""), respond(409, &[("retry-after", "0")], "")] {
        let error = error_of([first, respond(429, &[("retry-after", "60")], "")]);
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
    assert_eq!(error.kind(), ErrorKind::Request);
}

#[test]
fn a_key_is_not_sent_when_the_server_may_have_forgotten_it() {
    let server = Scripted::new([]);
    let short = idempotency().ttl(Duration::from_secs(60)).attempt_timeout(Duration::from_secs(61));
    let error = wait(client(&short).post(server.url()).idempotent().send()).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (ErrorKind::Expired, 0));
    // Between two attempts too.
    let server = Scripted::new([respond(503, &[("retry-after", "1")], "")]);
    let short =
        idempotency().ttl(Duration::from_millis(1500)).attempt_timeout(Duration::from_secs(1));
    let error = wait(client(&short).post(server.url()).idempotent().send()).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (ErrorKind::Expired, 1));
    assert_eq!(error.outcome(), Outcome::Unknown);
}
