//! Headers that belong to one connection, one moment or one client are never replayed.

use std::time::Duration;

use actix_web::HttpResponse;
use idempotent_actix::{EXPOSED_HEADERS, problem};
use test_support::{Request, TestApp, wait_for};

use super::handlers::all;

const NOT_REPLAYED: &[(&str, &str)] = &[
    ("set-cookie", "session=secret"),
    ("www-authenticate", "Bearer"),
    ("proxy-authenticate", "Basic"),
    ("authentication-info", "nextnonce=\"n\""),
    ("proxy-authentication-info", "nextnonce=\"n\""),
    ("clear-site-data", "\"cache\""),
    ("keep-alive", "timeout=5"),
    ("te", "trailers"),
    ("trailer", "x-checksum"),
    ("upgrade", "h2c"),
    ("server", "test/1"),
    ("access-control-allow-origin", "https://a.example"),
    ("access-control-allow-credentials", "true"),
    ("access-control-expose-headers", "x-kept"),
    ("strict-transport-security", "max-age=1"),
    ("ratelimit", "\"p\";r=1"),
    ("ratelimit-policy", "\"p\";q=1"),
    ("ratelimit-remaining", "1"),
    ("x-ratelimit-limit", "1"),
    ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ("tracestate", "a=b"),
    ("server-timing", "db;dur=1"),
    ("alt-svc", "h3=\":443\""),
    ("x-for-this-hop", "secret"),
    ("x-for-this-hop-too", "secret"),
];

const REPLAYED: &[(&str, &str)] = &[
    ("location", "/payments/1"),
    ("etag", "\"e\""),
    ("cache-control", "private"),
    ("vary", "accept"),
    ("content-language", "de"),
    ("retry-after", "7"),
    ("x-request-id", "r-1"),
    ("x-kept", "yes"),
];

#[test]
fn transient_headers_reach_only_the_first_client() {
    let app = TestApp::responding(|_| {
        let mut response = HttpResponse::Ok();
        for line in NOT_REPLAYED.iter().chain(REPLAYED) {
            response.append_header(*line);
        }
        response.append_header(("Set-Cookie", "second=1"));
        response.append_header(("Connection", "X-For-This-Hop,  x-for-this-hop-TOO")).body("text")
    });
    let server = app.serve(all);
    let request = Request::post("/payments").user("alice").key("k");
    let (first, replay) = (server.send(&request), server.send(&request));
    for (name, value) in NOT_REPLAYED {
        assert!(
            first.lines(name).contains(value),
            "{name} is missing in the first response: {first:?}"
        );
        assert_eq!(replay.lines(name), [""; 0], "{name} is replayed");
    }
    for (name, value) in REPLAYED {
        assert_eq!(
            (first.header(name), replay.header(name)),
            (Some(*value), Some(*value)),
            "{name}"
        );
    }
    assert_eq!((first.lines("set-cookie").len(), replay.lines("connection").len()), (2, 0));
    assert_eq!((replay.text(), replay.is_replay()), ("text", true));
    let names: Vec<_> = replay.stable_headers().into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names.len(),
        REPLAYED.len() + 1,
        "more is replayed than these headers and `content-length`: {names:?}"
    );
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_date_set_by_the_handler_is_not_replayed() {
    let app = TestApp::responding(|_| {
        HttpResponse::Ok().insert_header(("date", "Thu, 01 Jan 1970 00:00:00 GMT")).finish()
    });
    let server = app.serve(all);
    let request = Request::post("/payments").user("alice").key("k");
    let (first, replay) = (server.send(&request), server.send(&request));
    assert_eq!(first.header("date"), Some("Thu, 01 Jan 1970 00:00:00 GMT"));
    assert!(replay.is_replay());
    assert_ne!(replay.header("date").unwrap(), "Thu, 01 Jan 1970 00:00:00 GMT");
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn replay_markers_that_the_handler_sets_are_removed() {
    let mark = ("Idempotency-Replayed", "false");
    let app = TestApp::responding(move |_| {
        HttpResponse::Ok().insert_header(mark).insert_header(("Idempotency-Replay", "x")).finish()
    });
    let server = app.serve(all);
    let request = Request::post("/payments").user("alice").key("k");
    let first = server.send(&request);
    assert_eq!(
        (first.header("idempotency-replayed"), first.header("idempotency-replay")),
        (None, None)
    );
    let replay = server.send(&request);
    assert_eq!(
        (replay.header("idempotency-replayed"), replay.header("idempotency-replay")),
        (Some("true"), None)
    );
    assert_eq!(app.probe.runs(), 1);
}

/// What JavaScript may read of a response from another origin without a CORS configuration, and
/// what concerns the connection.
const READABLE: [&str; 7] = [
    "cache-control",
    "connection",
    "content-length",
    "content-type",
    "date",
    "transfer-encoding",
    "vary",
];

#[test]
fn the_headers_that_the_library_adds_are_exposed() {
    for name in [
        "idempotency-replayed",
        "idempotency-replay",
        "idempotency-not-run",
        "retry-after",
        "location",
        "link",
        "stripe-should-retry",
    ] {
        assert!(EXPOSED_HEADERS.contains(&name), "{name}");
    }
}

#[test]
fn a_client_in_a_browser_sees_every_header_of_a_refusal() {
    let app = TestApp::set(|builder| builder.problems(problem::stripe));
    let server = app.serve(all);
    assert!(wait_for("the drain", app.idempotency.drain(Duration::from_secs(5))));
    let refused = server.send(&Request::post("/payments").user("alice").key("k"));
    assert_eq!(refused.status, 503);
    assert!(refused.header("idempotency-not-run").is_some());
    for (name, _) in &refused.headers {
        let is_seen = READABLE.contains(&name.as_str()) || EXPOSED_HEADERS.contains(&name.as_str());
        assert!(is_seen, "{name}");
    }
}
