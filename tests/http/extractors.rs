//! Extractors see the same request with and without the guard, and reject the same requests.

use std::{future::Future, io::Read, pin::Pin};

use actix_multipart::Multipart;
use actix_web::{
    Either, Error, FromRequest, HttpRequest, HttpResponse,
    dev::Payload,
    error::InternalError,
    post,
    web::{self, Data, Form, Json, Path, Query, ServiceConfig},
};
use bytes::Bytes;
use futures_util::StreamExt;
use idempotent_actix::idempotent;
use serde::Deserialize;
use test_support::{Op, Probe, Request, TestApp};

use super::handlers::{User, assert_problem};

#[derive(Debug, Deserialize)]
struct Amount {
    amount: u32,
}

/// A custom extractor that reads the payload itself.
struct Reversed(Vec<u8>);

impl FromRequest for Reversed {
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Error>>>>;

    fn from_request(_: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let mut payload = payload.take();
        Box::pin(async move {
            let mut body = Vec::new();
            while let Some(chunk) = payload.next().await {
                body.extend_from_slice(&chunk?);
            }
            body.reverse();
            Ok(Self(body))
        })
    }
}

/// Handlers that record what their extractor saw.
macro_rules! handlers {
    ($($name:ident $path:literal ($pattern:pat, $type:ty) $seen:expr;)*) => {
        $(
            #[idempotent(scope = "user")]
            #[post($path)]
            async fn $name(user: User, probe: Data<Probe>, $pattern: $type) -> HttpResponse {
                probe.note(format!("{} {}", user.0, $seen));
                probe.run().await
            }
        )*

        fn services(config: &mut ServiceConfig) {
            config$(.service($name))*;
            config.service(in_parts).service(streamed).service(several).service(without_data);
        }
    };
}

handlers! {
    see_json "/json" (body, Json<Amount>) body.amount;
    see_form "/form" (body, Form<Amount>) body.amount;
    see_raw "/bytes" (body, Bytes) String::from_utf8_lossy(&body);
    see_text "/string" (body, String) body;
    see_path "/path/{amount}/{name}" (body, Path<(u32, String)>) format!("{} {}", body.0, body.1);
    see_query "/query" (Query(body), Query<Amount>) body.amount;
    see_request "/request" (body, HttpRequest) format!("{} {}", body.method(), body.path());
    see_reversed "/reversed" (Reversed(body), Reversed) String::from_utf8(body).unwrap();
    see_either "/either-body" (body, Either<Json<Amount>, Form<Amount>>) match body {
        Either::Left(json) => format!("json {}", json.amount),
        Either::Right(form) => format!("form {}", form.amount),
    };
    see_option "/maybe-json" (body, Option<Json<Amount>>)
        body.map_or("none".into(), |body| body.amount.to_string());
    see_result "/result" (body, Result<Json<Amount>, Error>)
        body.map_or("refused".into(), |body| body.amount.to_string());
}

#[idempotent(scope = "user")]
#[post("/multipart")]
async fn in_parts(user: User, probe: Data<Probe>, mut parts: Multipart) -> HttpResponse {
    let mut seen = user.0;
    while let Some(part) = parts.next().await {
        let mut part = part.unwrap();
        seen += &format!(" {}=", part.name().unwrap_or_default());
        while let Some(chunk) = part.next().await {
            seen += std::str::from_utf8(&chunk.unwrap()).unwrap();
        }
    }
    probe.note(seen);
    probe.run().await
}

#[idempotent(scope = "user")]
#[post("/payload")]
async fn streamed(user: User, probe: Data<Probe>, mut body: web::Payload) -> HttpResponse {
    let mut seen = Vec::new();
    while let Some(chunk) = body.next().await {
        chunk.unwrap().as_ref().read_to_end(&mut seen).unwrap();
    }
    probe.note(format!("{} {}", user.0, String::from_utf8(seen).unwrap()));
    probe.run().await
}

#[idempotent(scope = "user")]
#[post("/several/{amount}")]
async fn several(
    mut user: User,
    amount: Path<u32>,
    Query(Amount { amount: queried }): Query<Amount>,
    request: HttpRequest,
    probe: Data<Probe>,
    Json(body): Json<Amount>,
) -> HttpResponse {
    user.0 += "!";
    probe.note(format!("{} {amount} {queried} {} {}", user.0, request.query_string(), body.amount));
    probe.run().await
}

#[idempotent(scope = "user")]
#[post("/missing")]
async fn without_data(user: User, probe: Data<Probe>, data: Data<Amount>) -> HttpResponse {
    probe.note(format!("{} {}", user.0, data.amount));
    probe.run().await
}

const FORM: &str = "application/x-www-form-urlencoded";
const PARTS: &str = "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\none\r\n--B\r\n\
                     Content-Disposition: form-data; name=\"b\"\r\n\r\ntwo\r\n--B--\r\n";

/// The target, content type and body of a request, and what its handler sees.
const SEEN: &[(&str, &str, &str, &str)] = &[
    ("/json", "application/json", r#"{"amount":7}"#, "alice 7"),
    ("/form", FORM, "amount=7", "alice 7"),
    ("/bytes", "text/plain", "seven", "alice seven"),
    ("/string", "text/plain", "seven", "alice seven"),
    ("/payload", "text/plain", "seven", "alice seven"),
    ("/reversed", "text/plain", "seven", "alice neves"),
    ("/path/7/bob", "text/plain", "b", "alice 7 bob"),
    ("/query?amount=7", "text/plain", "b", "alice 7"),
    ("/request", "text/plain", "b", "alice POST /request"),
    ("/either-body", "application/json", r#"{"amount":7}"#, "alice json 7"),
    ("/either-body", FORM, "amount=7", "alice form 7"),
    ("/maybe-json", "application/json", r#"{"amount":7}"#, "alice 7"),
    ("/maybe-json", "application/json", "none", "alice none"),
    ("/result", "application/json", r#"{"amount":7}"#, "alice 7"),
    ("/result", "application/json", "none", "alice refused"),
    ("/multipart", "multipart/form-data; boundary=B", PARTS, "alice a=one b=two"),
    ("/several/7?amount=8", "application/json", r#"{"amount":9}"#, "alice! 7 8 amount=8 9"),
];

#[test]
fn every_extractor_sees_the_request_and_a_replay_runs_no_handler() {
    for (target, kind, body, seen) in SEEN {
        let app = TestApp::new();
        let server = app.serve(services);
        let request = Request::post(target).user("alice").key("k").header("Content-Type", kind);
        let first = server.send(&request.clone().body(body));
        assert_eq!(first.status, 201, "{target}: {}", first.text());
        server.send(&request.clone().body(body)).assert_replays(&first);
        // Each byte is sent as a chunk.
        server.send(&request.chunks(body.as_bytes().chunks(1))).assert_replays(&first);
        assert_eq!(app.probe.notes(), [*seen], "{target}");
    }
}

#[test]
fn every_extractor_sees_the_bytes_of_a_chunked_first_request() {
    for (target, kind, body, seen) in SEEN {
        let app = TestApp::new();
        let server = app.serve(services);
        let request = Request::post(target).user("alice").key("k").header("Content-Type", kind);
        let first = server.send(&request.clone().chunks(body.as_bytes().chunks(3)));
        assert_eq!((first.status, app.probe.notes()), (201, vec![(*seen).to_owned()]), "{target}");
        let other = format!("{body} ");
        let other = server.send(&request.body(other));
        // Some extractors reject the other body before the key is claimed.
        assert!(other.status == 422 || other.status == 400, "{target}: {}", other.status);
        assert_eq!(app.probe.runs(), 1);
    }
}

/// Each of these requests is rejected by an extractor, whose response the client gets.
#[test]
fn an_extractors_error_response_is_unchanged_and_leaves_no_record() {
    let app = TestApp::new();
    let server = app.serve(|config: &mut ServiceConfig| {
        config.app_data(web::JsonConfig::default().error_handler(|error, _| {
            let response =
                HttpResponse::ImATeapot().insert_header(("x-own", "yes")).body("no such JSON");
            InternalError::from_response(error, response).into()
        }));
        services(config);
    });
    for (target, kind, body, status, text) in [
        ("/json", "application/json", "{", 418, Some("no such JSON")),
        ("/json", "text/plain", "{}", 418, Some("no such JSON")),
        ("/several/7?amount=8", "application/json", "[]", 418, Some("no such JSON")),
        ("/several/seven?amount=8", "application/json", r#"{"amount":9}"#, 404, None),
        ("/several/7", "application/json", r#"{"amount":9}"#, 400, None),
        ("/path/seven/bob", "text/plain", "", 404, None),
        ("/form", "text/plain", "amount=7", 415, None),
        ("/form", FORM, "amount=x", 400, None),
        ("/missing", "text/plain", "", 500, None),
    ] {
        let request =
            Request::post(target).user("alice").key("k").header("Content-Type", kind).body(body);
        for _ in 0..2 {
            let refused = server.send(&request);
            assert_eq!(
                (refused.status, refused.header("link")),
                (status, None),
                "{target}: {}",
                refused.text()
            );
            assert!(text.is_none_or(|text| refused.text() == text), "{target}: {}", refused.text());
            assert_eq!(refused.header("x-own"), text.map(|_| "yes"), "{target}");
            assert!(!refused.is_replay());
        }
    }
    assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (0, 0));
    // The key is unused: a valid request with it runs.
    let good = Request::post("/json").user("alice").key("k").json(r#"{"amount":7}"#);
    assert_eq!((server.send(&good).status, app.probe.runs()), (201, 1));
}

#[test]
fn a_missing_or_malformed_key_is_reported_before_an_extractor_fails() {
    let app = TestApp::new();
    let server = app.serve(services);
    assert_problem(
        &server.send(&Request::post("/json").user("alice").json("{")),
        400,
        "key_missing",
        false,
    );
    assert_problem(
        &server.send(&Request::post("/json").key("k k").json("{")),
        400,
        "key_malformed",
        false,
    );
}
