//! Streamed responses: when they are sent, and what is recorded of them.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use actix_web::{
    HttpResponse,
    body::{BodySize, MessageBody},
    web::{Bytes, ServiceConfig},
};
use futures_util::{StreamExt, stream};
use test_support::{ClientResponse, Probe, Request, TestApp};

use super::handlers::all;

fn pay() -> Request {
    Request::post("/payments").user("alice").key("k").body("b")
}

fn services(config: &mut ServiceConfig) {
    all(config);
}

/// A body that yields these chunks and never ends.
fn endless(
    response: &mut actix_web::HttpResponseBuilder,
    chunks: &'static [&'static str],
) -> HttpResponse {
    let chunks =
        stream::iter(chunks).map(|chunk| Ok::<_, io::Error>(Bytes::from_static(chunk.as_bytes())));
    response.streaming(chunks.chain(stream::pending()))
}

fn assert_body_omitted(replay: &ClientResponse, content_type: &str) {
    assert_eq!((replay.status, replay.body.len(), replay.is_replay()), (200, 0, true));
    assert_eq!(replay.header("idempotency-replay"), Some("omitted"));
    assert_eq!(replay.header("content-type"), Some(content_type));
}

/// The limit for streams is a day here, so the test fails if the response waits for the limit.
#[test]
fn server_sent_events_are_forwarded_at_once_and_recorded_without_their_body() {
    for content_type in
        ["text/event-stream", "text/event-stream; charset=utf-8", "Text/Event-Stream"]
    {
        let probe = Probe::responding(move |_| {
            endless(
                HttpResponse::Ok().content_type(content_type),
                &["data: one\n\n", "data: two\n\n"],
            )
        });
        let app =
            TestApp::with(probe, |builder| builder.stream_limit(Duration::from_secs(24 * 60 * 60)));
        let server = app.serve(services);
        let mut first = server.begin(&pay());
        let seen = first.read_until("data: two");
        assert!(seen.starts_with("HTTP/1.1 200") && seen.contains("data: one"), "{seen}");
        assert_body_omitted(&server.send(&pay()), content_type);
        assert_eq!(app.probe.runs(), 1);
    }
}

#[test]
fn a_stream_that_does_not_end_in_time_is_forwarded_and_recorded_without_its_body() {
    let probe = Probe::responding(|_| {
        endless(HttpResponse::Ok().content_type("text/plain"), &["one ", "two "])
    });
    let app = TestApp::with(probe, |builder| builder.stream_limit(Duration::from_millis(50)));
    let server = app.serve(services);
    let mut first = server.begin(&pay());
    let seen = first.read_until("two ");
    assert!(seen.contains("one "), "{seen}");
    assert_body_omitted(&server.send(&pay()), "text/plain");
    assert_eq!(app.probe.runs(), 1);
}

/// A body of empty chunks that is always ready until it ends.
struct EmptyChunks {
    /// Whether the next chunk ends the body.
    ends: Arc<AtomicBool>,
}

impl MessageBody for EmptyChunks {
    type Error = io::Error;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        Poll::Ready((!self.ends.load(Ordering::SeqCst)).then(|| Ok(Bytes::new())))
    }
}

#[test]
fn a_body_that_is_always_ready_does_not_stop_its_worker() {
    let ends = Arc::new(AtomicBool::new(false));
    let body = ends.clone();
    let probe = Probe::responding(move |_| {
        HttpResponse::Ok().content_type("text/plain").body(EmptyChunks { ends: body.clone() })
    });
    let app =
        TestApp::with(probe, |builder| builder.stream_limit(Duration::from_secs(24 * 60 * 60)));
    let server = app.serve(services);
    let first = server.begin(&pay());
    app.probe.await_runs(1);
    let other = server.send(&Request::new("GET", "/nowhere"));
    assert_eq!(other.status, 404, "no other request is served meanwhile");
    ends.store(true, Ordering::SeqCst);
    assert_eq!(first.response().status, 200);
    assert!(server.send(&pay()).is_replay());
}

/// An operation in flight would leave no room for another one.
#[test]
fn an_operation_whose_stream_has_no_end_is_not_in_flight_once_it_is_recorded() {
    let probe = Probe::responding(|_| {
        endless(HttpResponse::Ok().content_type("text/event-stream"), &["data: 1\n\n"])
    });
    let app = TestApp::with(probe, |builder| builder.operations_per_principal(1));
    let server = app.serve(services);
    let streams = ["k1", "k2"].map(|key| {
        let mut stream = server.begin(&Request::post("/payments").user("alice").key(key));
        let head = stream.read_until("data: 1");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        stream
    });
    drop(streams);
}

#[test]
fn headers_count_towards_the_limit() {
    for (header, kept) in [(400, true), (900, true), (2000, false)] {
        let probe = Probe::responding(move |_| {
            HttpResponse::Ok()
                .insert_header(("x-large", "x".repeat(header)))
                .content_type("text/plain")
                .body("y".repeat(500))
        });
        let app = TestApp::with(probe, |builder| builder.response_limit(1000));
        let server = app.serve(services);
        let first = server.send(&pay());
        assert_eq!((first.body.len(), first.header("x-large").map(str::len)), (500, Some(header)));
        let replay = server.send(&pay());
        assert_eq!((replay.status, replay.is_replay()), (200, true));
        let whole = header == 400;
        assert_eq!(replay.header("idempotency-replay"), (!whole).then_some("omitted"), "{header}");
        assert_eq!(replay.body.len(), if whole { 500 } else { 0 });
        assert_eq!(replay.header("x-large").map(str::len), kept.then_some(header));
        let recording = app.record("alice", "POST /payments", "k").unwrap();
        assert!(format!("{recording:?}").len() < 4000);
        assert_eq!(app.probe.runs(), 1);
    }
}
