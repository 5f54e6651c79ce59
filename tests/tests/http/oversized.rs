//! Answers that are too large to keep, and answers that come in pieces.

use std::{io, pin::Pin, sync::mpsc, task::Poll};

use actix_web::{
    HttpResponse, HttpResponseBuilder,
    body::{BodySize, MessageBody},
    http::StatusCode,
};
use bytes::Bytes;
use futures_util::stream;
use tests::{Probe, Request, World};

use super::handlers::{all, assert_problem};

const LIMIT: usize = 1000;

fn pay() -> Request {
    Request::post("/payments").user("alice").key("k").body("b")
}

fn world(answer: impl Fn(usize) -> HttpResponse + Send + Sync + 'static) -> World {
    World::with(Probe::answering(answer), |builder| builder.answer_limit(LIMIT))
}

/// An answer that comes in pieces, all of them different.
fn streamed(status: u16, bytes: usize) -> HttpResponse {
    let body = text(bytes);
    let pieces: Vec<_> = body.chunks(64).map(|piece| Ok::<_, io::Error>(Bytes::copy_from_slice(piece))).collect();
    HttpResponseBuilder::new(StatusCode::from_u16(status).unwrap())
        .insert_header(("x-kept", "yes"))
        .content_type("text/plain")
        .streaming(stream::iter(pieces))
}

fn sized(bytes: usize) -> HttpResponse {
    HttpResponse::Created().insert_header(("x-kept", "yes")).content_type("text/plain").body(text(bytes))
}

fn text(bytes: usize) -> Vec<u8> {
    (0..).flat_map(|number: u32| format!("{number} ").into_bytes()).take(bytes).collect()
}

/// The first client gets all of it; later ones get status and headers, and nothing runs again.
fn assert_omitted(world: &World, bytes: usize) {
    let server = world.serve(all);
    let first = server.send(&pay());
    assert_eq!((first.status, first.body.len(), first.is_replay()), (201, bytes, false));
    assert!(first.body == text(bytes));
    assert_eq!(first.header("idempotency-replay"), None);
    for _ in 0..2 {
        let replay = server.send(&pay());
        assert_eq!((replay.status, replay.body.len(), replay.is_replay()), (201, 0, true));
        assert_eq!(replay.header("idempotency-replay"), Some("omitted"));
        assert_eq!((replay.header("x-kept"), replay.header("content-type")), (Some("yes"), Some("text/plain")));
        assert_eq!(replay.header("content-length"), Some("0"));
    }
    assert_problem(&server.send(&pay().body("other")), 422, "key_reused", false);
    assert_eq!(world.probe.runs(), 1);
}

#[test]
fn of_a_sized_answer_over_the_limit_status_and_headers_are_kept() {
    for bytes in [LIMIT + 1, 3_000_000] {
        assert_omitted(&world(move |_| sized(bytes)), bytes);
    }
}

#[test]
fn of_a_streamed_answer_over_the_limit_status_and_headers_are_kept() {
    for bytes in [LIMIT + 1, 3_000_000] {
        assert_omitted(&world(move |_| streamed(201, bytes)), bytes);
    }
}

#[test]
fn an_answer_of_just_the_limit_is_kept_whole() {
    for answer in [sized as fn(usize) -> HttpResponse, |bytes| streamed(201, bytes)] {
        // Names and values of the headers count too.
        let bytes = LIMIT - "x-keptyescontent-typetext/plain".len();
        assert_omitted(&world(move |_| answer(bytes + 1)), bytes + 1);
        let world = world(move |_| answer(bytes));
        let server = world.serve(all);
        let (first, replay) = (server.send(&pay()), server.send(&pay()));
        assert_eq!((&first.body, replay.is_replay()), (&text(bytes), true));
        assert_eq!((replay.status, &replay.body), (201, &first.body));
        assert_eq!((replay.header("idempotency-replay"), replay.header("x-kept")), (None, Some("yes")));
        assert_eq!(world.probe.runs(), 1);
    }
}

#[test]
fn a_streamed_answer_goes_out_with_its_length_once_it_is_kept() {
    let world = world(|_| streamed(201, 500));
    let server = world.serve(all);
    let (first, replay) = (server.send(&pay()), server.send(&pay()));
    assert_eq!((first.header("content-length"), first.header("transfer-encoding")), (Some("500"), None));
    replay.assert_replays(&first);
    assert_eq!((first.body == text(500), world.probe.runs()), (true, 1));
}

#[test]
fn a_streamed_answer_that_says_its_length_says_it_once() {
    let world = world(|_| {
        let body = stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"12345"))]);
        HttpResponse::Ok().no_chunking(5).streaming(body)
    });
    let server = world.serve(all);
    let (first, replay) = (server.send(&pay()), server.send(&pay()));
    assert_eq!((first.header("content-length"), first.text()), (Some("5"), "12345"));
    replay.assert_replays(&first);
}

#[test]
fn an_empty_stream_is_replayed_as_an_empty_body() {
    let world = world(|_| streamed(201, 0));
    let server = world.serve(all);
    let (first, replay) = (server.send(&pay()), server.send(&pay()));
    replay.assert_replays(&first);
    assert_eq!((first.body.len(), world.probe.runs()), (0, 1));
}

#[test]
fn the_rest_of_a_long_stream_is_not_waited_for() {
    let (sender, receiver) = mpsc::channel::<Bytes>();
    let receiver = std::sync::Mutex::new(Some(receiver));
    let world = world(move |_| {
        let rest = receiver.lock().unwrap().take().unwrap();
        let mut first = Some(Bytes::from(text(LIMIT + 1)));
        let body = stream::poll_fn(move |cx| {
            if let Some(first) = first.take() {
                return Poll::Ready(Some(Ok::<_, io::Error>(first)));
            }
            match rest.try_recv() {
                Ok(piece) => Poll::Ready(Some(Ok(piece))),
                Err(mpsc::TryRecvError::Disconnected) => Poll::Ready(None),
                Err(mpsc::TryRecvError::Empty) => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            }
        });
        HttpResponse::Created().streaming(body)
    });
    let server = world.serve(all);
    let first = server.begin(&pay());
    world.probe.await_runs(1);
    world.store.await_calls(tests::Op::Complete, 1);
    let replay = server.send(&pay());
    assert_eq!(
        (replay.status, replay.header("idempotency-replay")),
        (201, Some("omitted")),
        "while the first still streams"
    );
    sender.send(Bytes::from_static(b"the rest")).unwrap();
    drop(sender);
    assert!(first.answer().body.ends_with(b"the rest"));
    assert_eq!(world.probe.runs(), 1);
}

/// The first run's answer breaks off after a piece; the second is whole.
fn breaking_off(run: usize, after: usize) -> HttpResponse {
    let end = if run == 1 { Err(io::Error::other("a secret of the stream")) } else { Ok(Bytes::from_static(b"end")) };
    HttpResponse::Created().streaming(stream::iter([Ok(Bytes::from(text(after))), end]))
}

#[test]
fn an_answer_that_breaks_off_under_the_limit_is_an_abandoned_attempt() {
    let world = world(|run| breaking_off(run, 10));
    let server = world.serve(all);
    let broken = server.send(&pay());
    assert_problem(&broken, 500, "handler_failed", true);
    assert!(!broken.text().contains("secret"), "{}", broken.text());
    let second = server.send(&pay());
    assert_eq!((second.status, second.text().ends_with("end")), (201, true));
    server.send(&pay()).assert_replays(&second);
    assert_eq!(world.probe.runs(), 2);
}

#[test]
fn an_answer_that_breaks_off_over_the_limit_is_done_all_the_same() {
    let world = world(|run| breaking_off(run, LIMIT + 1));
    let server = world.serve(all);
    assert!(server.begin(&pay()).try_answer().is_err(), "the first client sees that it is cut off");
    let replay = server.send(&pay());
    assert_eq!((replay.status, replay.header("idempotency-replay")), (201, Some("omitted")));
    assert_eq!(world.probe.runs(), 1);
}

/// A body that panics when it is read.
struct Panicking;

impl MessageBody for Panicking {
    type Error = io::Error;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        panic!("a secret of the stream")
    }
}

#[test]
fn an_answer_that_panics_is_an_abandoned_attempt() {
    let world = world(|run| match run {
        1 => HttpResponse::Created().body(Panicking),
        _ => HttpResponse::Created().body("whole"),
    });
    let server = world.serve(all);
    let broken = server.send(&pay());
    assert_problem(&broken, 500, "handler_failed", true);
    assert!(!broken.text().contains("secret"), "{}", broken.text());
    let second = server.send(&pay());
    assert_eq!((second.status, second.text()), (201, "whole"), "the retry runs at once, not after the lease");
    server.send(&pay()).assert_replays(&second);
    assert_eq!(world.probe.runs(), 2);
}

#[test]
fn a_careful_key_whose_answer_panics_is_held() {
    let world = world(|_| HttpResponse::Created().body(Panicking));
    let server = world.serve(all);
    let careful = Request::post("/careful").user("alice").key("k");
    assert_problem(&server.send(&careful), 500, "handler_failed", false);
    assert_problem(&server.send(&careful), 409, "outcome_unknown", false);
    assert_eq!(world.probe.runs(), 1);
}
