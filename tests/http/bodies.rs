//! The request body: its limit, and the bytes that a handler receives.

use std::io::Write;

use actix_web::{
    HttpResponse, post,
    web::{self, Data, ServiceConfig},
};
use futures_util::StreamExt;
use idempotent_actix::idempotent;
use test_support::{Op, Probe, Request, TestApp};

use super::handlers::{User, all, assert_problem};

#[idempotent(scope = "user")]
#[post("/digest")]
async fn digest(user: User, probe: Data<Probe>, mut body: web::Payload) -> HttpResponse {
    let (mut length, mut sum) = (0, 0u64);
    while let Some(chunk) = body.next().await {
        let chunk = chunk.unwrap();
        length += chunk.len();
        sum =
            chunk.iter().fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    }
    probe.note(format!("{} {length} {sum}", user.0));
    probe.run().await
}

#[idempotent(scope = "user", key = "optional")]
#[post("/optional-digest")]
async fn optional_digest(user: User, probe: Data<Probe>, body: web::Bytes) -> HttpResponse {
    probe.note(format!("{} {}", user.0, body.len()));
    probe.run().await
}

fn services(config: &mut ServiceConfig) {
    config.service(digest).service(optional_digest);
    all(config);
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect()
}

fn note(body: &[u8]) -> String {
    let sum =
        body.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    format!("alice {} {sum}", body.len())
}

fn upload() -> Request {
    Request::post("/digest").user("alice").key("k")
}

#[test]
fn a_body_of_exactly_the_limit_is_accepted_and_one_byte_more_is_refused() {
    let app = TestApp::set(|builder| builder.body_limit(1000));
    let server = app.serve(services);
    let (body, too_long) = (bytes(1000), bytes(1001));
    for request in [
        upload().body(&too_long),
        upload().chunks(too_long.chunks(100)),
        upload().chunks([&too_long]),
    ] {
        let refused = server.send(&request);
        assert_eq!(assert_problem(&refused, 413, "body_too_large", false), None);
        assert!(refused.text().contains("1000"), "{}", refused.text());
    }
    assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (0, 0));
    let first = server.send(&upload().body(&body));
    assert_eq!(first.status, 201);
    server.send(&upload().chunks(body.chunks(300))).assert_replays(&first);
    assert_eq!(app.probe.notes(), [note(&body)]);
}

#[test]
fn a_length_over_the_limit_is_refused_before_the_body_is_sent() {
    let app = TestApp::new();
    let server = app.serve(services);
    for length in ["2097153", "99999999999999"] {
        let refused = server.send(&upload().without_length().header("Content-Length", length));
        assert_problem(&refused, 413, "body_too_large", false);
    }
    assert_eq!(app.store.calls(Op::Claim), 0);
}

#[test]
fn a_body_without_an_end_is_refused_once_it_is_over_the_limit() {
    let app = TestApp::set(|builder| builder.body_limit(1000));
    let server = app.serve(services);
    let mut endless = upload().without_length().header("Transfer-Encoding", "chunked").bytes();
    write!(endless, "3e9\r\n{}\r\n", "x".repeat(1001)).unwrap();
    assert_problem(&server.begin_raw(&endless).response(), 413, "body_too_large", false);
    assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (0, 0));
}

#[test]
fn without_a_key_only_the_extractors_limit_applies() {
    let app = TestApp::set(|builder| builder.body_limit(1000));
    let server = app.serve(services);
    let request = Request::post("/optional-digest").user("alice").body(bytes(5000));
    assert_eq!(server.send(&request).status, 201);
    assert_problem(&server.send(&request.key("k")), 413, "body_too_large", false);
    assert_eq!(app.probe.notes(), ["alice 5000"]);
}

#[test]
fn the_extractors_limit_applies_below_a_larger_limit_of_the_guard() {
    let app = TestApp::new();
    let server = app.serve(|config: &mut ServiceConfig| {
        config.app_data(web::PayloadConfig::new(100));
        services(config);
    });
    let refused =
        server.send(&Request::post("/optional-digest").user("alice").key("k").body(bytes(101)));
    assert_eq!((refused.status, refused.header("link")), (413, None), "actix's own response");
    assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (0, 0));
}

#[test]
fn the_chunks_that_a_body_arrives_in_do_not_change_its_fingerprint() {
    let app = TestApp::new();
    let server = app.serve(services);
    let body = bytes(200_000);
    let first = server.send(&upload().body(&body));
    assert_eq!(first.status, 201);
    for size in [1000, 4096, 65_536, 200_000] {
        server.send(&upload().chunks(body.chunks(size))).assert_replays(&first);
    }
    let mut other = body.clone();
    *other.last_mut().unwrap() ^= 1;
    assert_problem(&server.send(&upload().chunks(other.chunks(4096))), 422, "key_reused", false);
    assert_problem(&server.send(&upload().body(&body[..199_999])), 422, "key_reused", false);
    assert_eq!(app.probe.notes(), [note(&body)]);
}

#[test]
fn small_and_large_chunks_keep_their_order() {
    let app = TestApp::new();
    let server = app.serve(services);
    let body = bytes(100_000);
    let mut rest = &body[..];
    let mut chunks = Vec::new();
    for size in [1, 9000, 2, 3, 5000, 4095, 4096, 4097, 1].into_iter().cycle() {
        let (chunk, after) = rest.split_at(size.min(rest.len()));
        chunks.push(chunk);
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    assert!(chunks.len() > 20);
    let first = server.send(&upload().chunks(&chunks));
    assert_eq!(first.status, 201);
    server.send(&upload().body(&body)).assert_replays(&first);
    assert_eq!(app.probe.notes(), [note(&body)]);
}

#[test]
fn the_body_is_part_of_the_fingerprint_even_if_the_handler_does_not_read_it() {
    let app = TestApp::new();
    let server = app.serve(services);
    let request = |body: &str| Request::post("/payments").user("alice").key("k").body(body);
    let first = server.send(&request("one"));
    assert_problem(&server.send(&request("two")), 422, "key_reused", false);
    assert_problem(&server.send(&request("")), 422, "key_reused", false);
    server.send(&request("one")).assert_replays(&first);
    assert_eq!(app.probe.runs(), 1);
}

#[test]
fn a_request_whose_body_is_cut_off_does_not_run() {
    let app = TestApp::new();
    let server = app.serve(services);
    let cut = upload().without_length().header("Content-Length", "10").bytes();
    let connection = server.begin_raw(&cut);
    drop(connection);
    let malformed = upload().without_length().header("Transfer-Encoding", "chunked").bytes();
    let malformed = server.begin_raw(&[malformed, b"zz\r\n".to_vec()].concat());
    assert!(malformed.try_response().map_or(true, |response| response.status == 400));
    let first = server.send(&upload().body("whole"));
    assert_eq!((first.status, app.probe.runs(), app.store.calls(Op::Claim)), (201, 1, 1));
}

#[test]
fn with_a_raised_limit_a_large_upload_arrives_complete() {
    let app = TestApp::set(|builder| builder.body_limit(8 << 20));
    let server = app.serve(services);
    let body = bytes(8 << 20);
    let first = server.send(&upload().body(&body));
    assert_eq!(first.status, 201);
    server.send(&upload().chunks(body.chunks(1 << 20))).assert_replays(&first);
    assert_eq!(app.probe.notes(), [note(&body)]);
}
