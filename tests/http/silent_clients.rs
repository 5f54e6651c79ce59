//! Clients that send a part of their request and then nothing, without closing the connection.

use std::time::Duration;

use test_support::{Op, Request, TestApp};

use super::handlers::{all, assert_problem};

const BODY: &str = "amount=2000&currency=usd";

fn pay(user: &str) -> Request {
    Request::post("/payments").user(user).key("k").body(BODY)
}

/// The bytes of a request, up to the middle of its body.
fn half(request: &Request) -> (Vec<u8>, Vec<u8>) {
    let mut first = request.bytes();
    let rest = first.split_off(first.len() - BODY.len() / 2);
    (first, rest)
}

/// Fails if a request holds a key, or a place among the operations in flight, before the whole
/// request has arrived.
#[test]
fn a_client_that_falls_silent_in_its_body_holds_neither_the_key_nor_a_place() {
    let app = TestApp::set(|builder| builder.operations_in_flight(1).operations_per_principal(1));
    let server = app.serve(all);
    let (begun, rest) = half(&pay("alice"));
    let mut silent: Vec<_> = (0..8).map(|_| server.begin_raw(&begun)).collect();
    // The server has one worker, which has read the other requests before this response.
    let first = server.send(&pay("alice"));
    assert_eq!((first.status, first.is_replay(), app.store.calls(Op::Claim)), (201, false, 1));
    assert_eq!(server.send(&pay("bob")).status, 201);

    // One of them continues after all.
    let mut late = silent.pop().unwrap();
    late.send_more(&rest);
    late.response().assert_replays(&first);
    // The others give up.
    drop(silent);
    server.send(&pay("alice")).assert_replays(&first);
    assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (2, 4));
    assert!(test_support::wait_for("the drain", app.idempotency.drain(Duration::from_secs(5))));
}

/// Fails if the silent request keeps its key from another client, or gets its response.
#[test]
fn a_request_that_continues_after_another_one_with_its_key_is_judged_then() {
    let app = TestApp::new();
    let server = app.serve(all);
    let (begun, _) = half(&pay("alice"));
    let mut silent = server.begin_raw(&begun);
    let first = server.send(&pay("alice"));
    assert_eq!(first.status, 201);
    silent.send_more(&vec![b'x'; BODY.len() / 2]);
    assert_problem(&silent.response(), 422, "key_reused", false);
    assert_eq!(app.probe.runs(), 1);
}
