//! A replay is the first response, byte for byte.

use actix_web::{
    HttpResponse, HttpResponseBuilder,
    http::{StatusCode, header},
};
use std::time::Duration;
use test_support::{Op, Request, TestApp, client::ClientResponse};

use super::handlers::all;

fn pay() -> Request {
    Request::post("/payments").user("alice").key("k").json(r#"{"amount":1}"#)
}

/// Sends a request twice. Asserts that the handler ran once and that the second response replays
/// the first.
fn send_twice(
    response: impl Fn() -> HttpResponse + Send + Sync + 'static,
) -> (ClientResponse, ClientResponse) {
    let app = TestApp::responding(move |_| response());
    let server = app.serve(all);
    let (first, replay) = (server.send(&pay()), server.send(&pay()));
    replay.assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
    (first, replay)
}

#[test]
fn the_first_response_is_the_handlers_and_unmarked() {
    let app = TestApp::new();
    let first = app.serve(all).send(&pay());
    assert_eq!(first.status, 201);
    assert_eq!(first.body, br#"{"secret of run":1}"#);
    let expected = [
        ("content-length", "19"),
        ("content-type", "application/json"),
        ("location", "/payments/1"),
    ];
    let expected: Vec<_> = expected.map(|(name, value)| (name.to_owned(), value.into())).into();
    assert_eq!(first.stable_headers(), expected);
    assert_eq!(
        (first.header("idempotency-replayed"), first.header("idempotency-replay")),
        (None, None)
    );
}

#[test]
fn json_is_replayed() {
    let (_, replay) = send_twice(|| HttpResponse::Ok().json(["\u{e9}", "\u{1f600}"]));
    assert_eq!(replay.text(), "[\"\u{e9}\",\"\u{1f600}\"]");
    assert_eq!(replay.header("content-type"), Some("application/json"));
    assert_eq!(replay.header("idempotency-replay"), None);
}

#[test]
fn every_byte_is_replayed() {
    let all: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let body = all.clone();
    let (_, replay) = send_twice(move || {
        HttpResponse::Ok().content_type("application/octet-stream").body(body.clone())
    });
    assert!(replay.body == all);
}

#[test]
fn an_empty_body_is_replayed_as_an_empty_body() {
    let (_, replay) = send_twice(|| HttpResponse::Accepted().finish());
    assert_eq!((replay.status, replay.header("content-length")), (202, Some("0")));
    let (_, replay) = send_twice(|| HttpResponse::Accepted().body(""));
    assert_eq!((replay.status, replay.header("content-length")), (202, Some("0")));
}

#[test]
fn a_response_without_a_body_is_replayed_without_one() {
    let (_, replay) =
        send_twice(|| HttpResponse::NoContent().insert_header(("x-kept", "yes")).finish());
    assert_eq!(
        (replay.status, replay.header("content-length"), replay.header("x-kept")),
        (204, None, Some("yes"))
    );
    let (_, replay) =
        send_twice(|| HttpResponse::NotModified().insert_header((header::ETAG, "\"e\"")).finish());
    assert_eq!((replay.status, replay.header("etag")), (304, Some("\"e\"")));
    let none = || HttpResponse::Ok().body(actix_web::body::None::new());
    let (_, replay) = send_twice(none);
    assert_eq!((replay.status, replay.header("content-length")), (200, None));
}

#[test]
fn any_status_is_replayed() {
    for status in [200, 299, 302, 400, 402, 404, 409, 418, 422, 451, 499] {
        let (_, replay) = send_twice(move || {
            HttpResponseBuilder::new(StatusCode::from_u16(status).unwrap()).body("text")
        });
        assert_eq!(replay.status, status);
    }
}

#[test]
fn header_lines_of_one_name_keep_their_number_and_order() {
    let response = || {
        let mut response = HttpResponse::Ok();
        for value in ["one", "two, three", "one", "four"] {
            response.append_header(("X-List", value)).append_header(("Link", format!("<{value}>")));
        }
        response.finish()
    };
    let (_, replay) = send_twice(response);
    assert_eq!(replay.lines("x-list"), ["one", "two, three", "one", "four"]);
    assert_eq!(replay.lines("link").len(), 4);
}

#[test]
fn header_values_are_replayed_byte_for_byte() {
    let raw = b"caf\xe9 \t\x80\xff";
    let response = || {
        let value = header::HeaderValue::from_bytes(b"caf\xe9 \t\x80\xff").unwrap();
        HttpResponse::Ok().insert_header(("x-raw", value)).insert_header(("x-empty", "")).finish()
    };
    let (first, replay) = send_twice(response);
    for response in [first, replay] {
        assert!(response.headers.contains(&("x-raw".into(), raw.to_vec())));
        assert_eq!(response.header("x-empty"), Some(""));
    }
}

#[test]
fn a_replay_is_replayed_again_until_the_ttl_is_over() {
    let app = TestApp::new();
    let server = app.serve(all);
    let request = Request::post("/short_ttl").user("alice").key("k");
    let first = server.send(&request);
    for _ in 0..3 {
        server.send(&request).assert_replays(&first);
    }
    app.advance(Duration::from_millis(59_999));
    server.send(&request).assert_replays(&first);
    app.advance(Duration::from_millis(1));
    let second = server.send(&request);
    assert_eq!(
        (second.status, second.is_replay(), &second.json()["secret of run"]),
        (201, false, &2.into())
    );
    server.send(&request).assert_replays(&second);
    assert_eq!(app.probe.runs(), 2);
}

#[test]
fn no_byte_of_the_response_is_sent_before_it_is_recorded() {
    let app = TestApp::new();
    let server = app.serve(all);
    app.store.block(Some(Op::Complete));
    let first = server.begin(&pay());
    app.probe.await_runs(1);
    // The server has one worker: when it has responded to this request, the first one has made as
    // much progress as it can.
    assert_eq!(server.send(&pay()).problem(), (409, "in_flight".into()));
    assert_eq!(server.send(&pay()).problem(), (409, "in_flight".into()));
    assert!(!first.response_has_begun());
    app.store.block(None);
    let first = first.response();
    assert_eq!(first.status, 201);
    server.send(&pay()).assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}
