//! Responses that exceed the size limit, and streamed responses.

use std::{io, pin::Pin, sync::mpsc, task::Poll};

use actix_web::{
    HttpResponse, HttpResponseBuilder,
    body::{BodySize, MessageBody},
    http::StatusCode,
    post,
    web::Data,
};
use bytes::Bytes;
use futures_util::stream;
use idempotent_actix::{idempotent, scope};
use test_support::{Probe, Request, TestApp, log};

use super::handlers::{all, assert_problem};

const LIMIT: usize = 1000;

fn pay() -> Request {
    Request::post("/payments").user("alice").key("k").body("b")
}

fn app(response: impl Fn(usize) -> HttpResponse + Send + Sync + 'static) -> TestApp {
    TestApp::with(Probe::responding(response), |builder| builder.response_limit(LIMIT))
}

/// A streamed response; no two of its chunks are equal.
fn streamed(status: u16, bytes: usize) -> HttpResponse {
    let body = text(bytes);
    let chunks: Vec<_> =
        body.chunks(64).map(|chunk| Ok::<_, io::Error>(Bytes::copy_from_slice(chunk))).collect();
    HttpResponseBuilder::new(StatusCode::from_u16(status).unwrap())
        .insert_header(("x-kept", "yes"))
        .content_type("text/plain")
        .streaming(stream::iter(chunks))
}

fn sized(bytes: usize) -> HttpResponse {
    HttpResponse::Created()
        .insert_header(("x-kept", "yes"))
        .content_type("text/plain")
        .body(text(bytes))
}

fn text(bytes: usize) -> Vec<u8> {
    (0..).flat_map(|number: u32| format!("{number} ").into_bytes()).take(bytes).collect()
}

/// Asserts that the first client gets the complete response, that later ones get its status and
/// headers, and that nothing runs again.
fn assert_body_omitted(app: &TestApp, bytes: usize) {
    let server = app.serve(all);
    let first = server.send(&pay());
    assert_eq!((first.status, first.body.len(), first.is_replay()), (201, bytes, false));
    assert!(first.body == text(bytes));
    assert_eq!(first.header("idempotency-replay"), None);
    for _ in 0..2 {
        let replay = server.send(&pay());
        assert_eq!((replay.status, replay.body.len(), replay.is_replay()), (201, 0, true));
        assert_eq!(replay.header("idempotency-replay"), Some("omitted"));
        assert_eq!(
            (replay.header("x-kept"), replay.header("content-type")),
            (Some("yes"), Some("text/plain"))
        );
        assert_eq!(replay.header("content-length"), Some("0"));
    }
    assert_problem(&server.send(&pay().body("other")), 422, "key_reused", false);
    assert_eq!(app.probe.runs(), 1);
}

#[idempotent(scope = "scope::global")]
#[post("/large")]
async fn large(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

#[test]
fn a_handler_whose_responses_are_too_large_is_logged_once() {
    let app = app(|_| streamed(201, LIMIT + 1));
    let server = app.serve(|config| {
        config.service(large);
    });
    for key in ["k1", "k2", "k2"] {
        assert_eq!(server.send(&Request::post("/large").key(key)).status, 201);
    }
    let lines = log::captured();
    let lines: Vec<_> = lines.lines().filter(|line| line.contains("handler=\"large\"")).collect();
    let [line] = lines[..] else { panic!("{lines:?}") };
    for part in ["WARN", "response_limit=1000", "stream_limit=5s", "status and headers"] {
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn a_sized_response_over_the_limit_is_recorded_as_status_and_headers() {
    for bytes in [LIMIT + 1, 3_000_000] {
        assert_body_omitted(&app(move |_| sized(bytes)), bytes);
    }
}

#[test]
fn a_streamed_response_over_the_limit_is_recorded_as_status_and_headers() {
    for bytes in [LIMIT + 1, 3_000_000] {
        assert_body_omitted(&app(move |_| streamed(201, bytes)), bytes);
    }
}

#[test]
fn a_response_of_exactly_the_limit_is_recorded_in_full() {
    for response in [sized as fn(usize) -> HttpResponse, |bytes| streamed(201, bytes)] {
        // The names and values of the headers count towards the limit.
        let bytes = LIMIT - "x-keptyescontent-typetext/plain".len();
        assert_body_omitted(&app(move |_| response(bytes + 1)), bytes + 1);
        let app = app(move |_| response(bytes));
        let server = app.serve(all);
        let (first, replay) = (server.send(&pay()), server.send(&pay()));
        assert_eq!((&first.body, replay.is_replay()), (&text(bytes), true));
        assert_eq!((replay.status, &replay.body), (201, &first.body));
        assert_eq!(
            (replay.header("idempotency-replay"), replay.header("x-kept")),
            (None, Some("yes"))
        );
        assert_eq!(app.probe.runs(), 1);
    }
}

#[test]
fn a_streamed_response_is_sent_with_its_length_once_it_is_recorded() {
    let app = app(|_| streamed(201, 500));
    let server = app.serve(all);
    let (first, replay) = (server.send(&pay()), server.send(&pay()));
    assert_eq!(
        (first.header("content-length"), first.header("transfer-encoding")),
        (Some("500"), None)
    );
    replay.assert_replays(&first);
    assert_eq!((first.body == text(500), app.probe.runs()), (true, 1));
}

#[test]
fn a_streamed_response_with_a_content_length_has_it_once() {
    let app = app(|_| {
        let body = stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"12345"))]);
        HttpResponse::Ok().no_chunking(5).streaming(body)
    });
    let server = app.serve(all);
    let (first, replay) = (server.send(&pay()), server.send(&pay()));
    assert_eq!((first.header("content-length"), first.text()), (Some("5"), "12345"));
    replay.assert_replays(&first);
}

#[test]
fn an_empty_stream_is_replayed_as_an_empty_body() {
    let app = app(|_| streamed(201, 0));
    let server = app.serve(all);
    let (first, replay) = (server.send(&pay()), server.send(&pay()));
    replay.assert_replays(&first);
    assert_eq!((first.body.len(), app.probe.runs()), (0, 1));
}

#[test]
fn an_oversized_stream_is_recorded_before_it_ends() {
    let (sender, receiver) = mpsc::channel::<Bytes>();
    let receiver = std::sync::Mutex::new(Some(receiver));
    let app = app(move |_| {
        let rest = receiver.lock().unwrap().take().unwrap();
        let mut first = Some(Bytes::from(text(LIMIT + 1)));
        let body = stream::poll_fn(move |cx| {
            if let Some(first) = first.take() {
                return Poll::Ready(Some(Ok::<_, io::Error>(first)));
            }
            match rest.try_recv() {
                Ok(chunk) => Poll::Ready(Some(Ok(chunk))),
                Err(mpsc::TryRecvError::Disconnected) => Poll::Ready(None),
                Err(mpsc::TryRecvError::Empty) => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            }
        });
        HttpResponse::Created().streaming(body)
    });
    let server = app.serve(all);
    let first = server.begin(&pay());
    app.probe.await_runs(1);
    app.store.await_calls(test_support::Op::Complete, 1);
    let replay = server.send(&pay());
    assert_eq!(
        (replay.status, replay.header("idempotency-replay")),
        (201, Some("omitted")),
        "while the first response is still being sent"
    );
    sender.send(Bytes::from_static(b"the rest")).unwrap();
    drop(sender);
    assert!(first.response().body.ends_with(b"the rest"));
    assert_eq!(app.probe.runs(), 1);
}

/// A stream that ends with an error after one chunk in the first run, and is complete in others.
fn failing_stream(run: usize, after: usize) -> HttpResponse {
    let end = if run == 1 {
        Err(io::Error::other("a secret of the stream"))
    } else {
        Ok(Bytes::from_static(b"end"))
    };
    HttpResponse::Created().streaming(stream::iter([Ok(Bytes::from(text(after))), end]))
}

#[test]
fn a_response_that_fails_below_the_limit_abandons_the_attempt() {
    let app = app(|run| failing_stream(run, 10));
    let server = app.serve(all);
    let failed = server.send(&pay());
    assert_problem(&failed, 500, "handler_failed", true);
    assert!(!failed.text().contains("secret"), "{}", failed.text());
    let second = server.send(&pay());
    assert_eq!((second.status, second.text().ends_with("end")), (201, true));
    server.send(&pay()).assert_replays(&second);
    assert_eq!(app.probe.runs(), 2);
}

#[test]
fn a_response_that_fails_above_the_limit_is_still_completed() {
    let app = app(|run| failing_stream(run, LIMIT + 1));
    let server = app.serve(all);
    assert!(
        server.begin(&pay()).try_response().is_err(),
        "the first client got a complete response"
    );
    let replay = server.send(&pay());
    assert_eq!((replay.status, replay.header("idempotency-replay")), (201, Some("omitted")));
    assert_eq!(app.probe.runs(), 1);
}

/// A body that panics when it is read.
struct Panicking;

impl MessageBody for Panicking {
    type Error = io::Error;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(
        self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        panic!("a secret of the stream")
    }
}

#[test]
fn a_response_body_that_panics_abandons_the_attempt() {
    let app = app(|run| match run {
        1 => HttpResponse::Created().body(Panicking),
        _ => HttpResponse::Created().body("whole"),
    });
    let server = app.serve(all);
    let failed = server.send(&pay());
    assert_problem(&failed, 500, "handler_failed", true);
    assert!(!failed.text().contains("secret"), "{}", failed.text());
    let second = server.send(&pay());
    assert_eq!((second.status, second.text()), (201, "whole"), "the retry did not run at once");
    server.send(&pay()).assert_replays(&second);
    assert_eq!(app.probe.runs(), 2);
}

#[test]
fn with_the_hold_policy_a_key_whose_response_body_panics_is_held() {
    let app = app(|_| HttpResponse::Created().body(Panicking));
    let server = app.serve(all);
    let hold_if_abandoned = Request::post("/hold_if_abandoned").user("alice").key("k");
    assert_problem(&server.send(&hold_if_abandoned), 500, "handler_failed", false);
    assert_problem(&server.send(&hold_if_abandoned), 409, "outcome_unknown", false);
    assert_eq!(app.probe.runs(), 1);
}
