//! The exact bytes of problem responses, in each rendering.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, http::StatusCode, web::ServiceConfig};
use idempotent_actix::{
    IdempotencyBuilder,
    problem::{self, Problem},
};
use test_support::{ClientResponse, Fault, Op, Probe, Request, Server, TestApp, wait_for};

use super::{
    handlers::{all, assert_problem},
    misconfigured, routing, scopes,
};

fn services(config: &mut ServiceConfig) {
    config.configure(scopes::services).configure(routing::services);
}

fn pay(key: &str) -> Request {
    Request::post("/payments").user("alice").key(key).body("b")
}

/// An application with a low limit for bodies, whose first run panics.
fn app(settings: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder) -> TestApp {
    let probe = Probe::responding(|run| {
        assert!(run > 1, "the handler panics");
        HttpResponse::Created().finish()
    });
    TestApp::with(probe, |builder| settings(builder.body_limit(100)))
}

/// One problem response of each kind, in the order of [`EXPECTED`].
fn problems(app: &TestApp, server: &Server) -> Vec<ClientResponse> {
    let mut responses = vec![
        server.send(&Request::post("/payments").user("alice")),
        server.send(&pay("k k")),
        server.send(&Request::post("/by-header").key("k")),
        server.send(&Request::new("GET", "/by-hand").user("alice").key("k")),
        server.send(&pay("k").body("b".repeat(101))),
        server.send(&Request::post("/hold_if_abandoned").user("alice").key("k")),
        server.send(&Request::post("/hold_if_abandoned").user("alice").key("k")),
        server.send(&Request::post("/hold_if_abandoned").user("alice").key("k").body("other")),
    ];
    app.probe.hold();
    let first = server.begin(&pay("k"));
    app.probe.await_runs(2);
    responses.push(server.send(&pay("k")));
    app.probe.release_all();
    let _ = first.response();
    app.store.fail(Op::Claim, 2, Fault::Before);
    responses.push(server.send(&pay("k")));
    assert!(wait_for("the end of all work", app.idempotency.drain(Duration::from_secs(5))));
    responses.push(server.send(&pay("k")));
    responses
}

/// Code, status, title, detail, and whether the client may retry.
const EXPECTED: [(&str, u16, &str, &str, bool); 11] = [
    (
        "key_missing",
        400,
        "An idempotency key is required",
        "Send a new UUID in the header idempotency-key for each operation.",
        false,
    ),
    (
        "key_malformed",
        400,
        "The idempotency key is malformed",
        "The header idempotency-key is invalid: an unquoted key may contain only visible ASCII \
         characters except the quote and the comma.",
        false,
    ),
    (
        "scope_missing",
        401,
        "No authenticated principal for this idempotency key",
        "Authenticate the request: each idempotency key belongs to a principal.",
        false,
    ),
    (
        "method_not_allowed",
        405,
        "The method is not allowed for this resource",
        "Use one of the methods in the Allow header.",
        false,
    ),
    (
        "body_too_large",
        413,
        "The request body is too large",
        "The body may have at most 100 bytes.",
        false,
    ),
    (
        "handler_failed",
        500,
        "The handler failed unexpectedly",
        "Check what this request did. Sending it again will not run it.",
        false,
    ),
    (
        "outcome_unknown",
        409,
        "The outcome of a request with this idempotency key is unknown",
        "Check what that request did. Sending this request again will not run it.",
        false,
    ),
    (
        "key_reused",
        422,
        "The idempotency key was used for a different request",
        "This request was not run. The earlier request with this key may have been carried out: \
         send it again unchanged to get its response, and do not use a new key before you know.",
        false,
    ),
    (
        "in_flight",
        409,
        "A request with this idempotency key is still in progress",
        "Wait for its response, or send this request again later with the same key.",
        true,
    ),
    (
        "store_unavailable",
        503,
        "The idempotency store is unavailable",
        "The request was not run. Send it again with the same key.",
        true,
    ),
    (
        "shutting_down",
        503,
        "The server is shutting down",
        "The request was not run. Send it again with the same key.",
        true,
    ),
];

/// The headers that only some problem responses have.
fn extra_headers(response: &ClientResponse) -> Vec<&str> {
    // actix-web closes a connection whose body was not read.
    let always = ["cache-control", "content-length", "content-type", "link", "date", "connection"];
    let names = response.headers.iter().map(|(name, _)| name.as_str());
    let mut extra: Vec<_> = names.filter(|name| !always.contains(name)).collect();
    extra.sort_unstable();
    extra
}

#[test]
fn each_refusal_has_exactly_these_bytes_and_headers() {
    let app = app(|builder| builder);
    let server = app.serve(services);
    let responses = problems(&app, &server);
    assert_eq!(responses.len(), EXPECTED.len());
    for (response, (code, status, title, detail, retryable)) in responses.iter().zip(EXPECTED) {
        let bytes = format!(
            concat!(
                r#"{{"code":"{code}","detail":"{detail}","retryable":{retryable},"#,
                r#""status":{status},"title":"{title}","type":"/idempotency#{code}"}}"#
            ),
            code = code,
            detail = detail,
            retryable = retryable,
            status = status,
            title = title,
        );
        assert_eq!((response.status, response.text()), (status, &*bytes));
        assert_eq!(response.header("content-type"), Some("application/problem+json"));
        assert_eq!(
            response.header("link"),
            Some(&*format!("</idempotency#{code}>; rel=\"describedby\""))
        );
        let extra: &[_] = match code {
            "scope_missing" => &["www-authenticate"],
            "method_not_allowed" => &["allow"],
            "in_flight" => &["retry-after"],
            "store_unavailable" | "shutting_down" => &["idempotency-not-run", "retry-after"],
            _ => &[],
        };
        assert_eq!(extra_headers(response), extra, "{code}");
        let pause = response.header("retry-after").map(|seconds| seconds.parse::<u32>().unwrap());
        assert!(pause.is_none_or(|seconds| (1..=30).contains(&seconds)), "{code}: {pause:?}");
    }
}

#[test]
fn the_documentation_url_can_be_changed() {
    let app = app(|builder| builder.documentation("https://docs.example/errors/"));
    let server = app.serve(all);
    let refused = server.send(&Request::post("/payments").user("alice"));
    let url = "https://docs.example/errors/key_missing";
    assert_eq!(refused.json()["type"], url);
    assert_eq!(refused.header("link"), Some(&*format!("<{url}>; rel=\"describedby\"")));
}

#[test]
fn the_stripe_rendering_is_a_problem_with_the_members_of_its_libraries() {
    let app = app(|builder| builder.problems(problem::stripe));
    let server = app.serve(services);
    let responses = problems(&app, &server);
    for (response, (code, status, title, detail, retryable)) in responses.iter().zip(EXPECTED) {
        let (kind, stripes_code) = match code {
            "in_flight" => ("idempotency_error", "idempotency_key_in_use"),
            "key_reused" | "outcome_unknown" | "key_malformed" => ("idempotency_error", code),
            _ if status >= 500 => ("api_error", code),
            _ => ("invalid_request_error", code),
        };
        assert_eq!(response.problem(), (status, code.to_owned()));
        let problem = response.json();
        assert_eq!(
            problem["error"],
            serde_json::json!({
                "type": kind,
                "code": stripes_code,
                "message": format!("{title}. {detail}"),
                "doc_url": format!("/idempotency#{code}"),
            })
        );
        assert_eq!((&problem["title"], &problem["retryable"]), (&title.into(), &retryable.into()));
        assert_eq!(
            response.header("stripe-should-retry"),
            Some(if retryable { "true" } else { "false" })
        );
        assert_eq!(response.header("content-type"), Some("application/problem+json"));
    }
}

#[test]
fn stripes_own_libraries_get_the_status_that_they_know_for_a_reused_key() {
    let app = TestApp::set(|builder| builder.problems(problem::stripe));
    let server = app.serve(all);
    assert_eq!(server.send(&pay("k")).status, 201);
    let reused = server.send(&pay("k").body("other").header("X-Stripe-Client-User-Agent", "{}"));
    assert_eq!(reused.problem(), (400, "key_reused".into()));
    assert_eq!(
        (&reused.json()["status"], &reused.json()["error"]["type"]),
        (&400.into(), &"idempotency_error".into())
    );
    assert_eq!(server.send(&pay("k").body("other")).problem(), (422, "key_reused".into()));
}

fn custom_rendering(problem: &Problem, request: &HttpRequest) -> HttpResponse {
    let text = format!(
        "{} {} {} {:?} {}",
        problem.kind().code(),
        request.path(),
        problem.is_retryable(),
        problem.retry_after_seconds().is_some(),
        problem.allow().unwrap_or("-"),
    );
    HttpResponse::build(StatusCode::from_u16(problem.kind().status()).unwrap())
        .insert_header(("x-own", problem.documentation()))
        .body(text)
}

#[test]
fn the_application_can_render_problems() {
    let app = app(|builder| builder.problems(custom_rendering));
    let server = app.serve(services);
    for (response, (code, status, _, _, retryable)) in problems(&app, &server).iter().zip(EXPECTED)
    {
        let after = matches!(code, "in_flight" | "store_unavailable" | "shutting_down");
        let words: Vec<_> = response.text().split(' ').collect();
        assert_eq!((response.status, words[0]), (status, code));
        let allow = if code == "method_not_allowed" { "POST" } else { "-" };
        assert_eq!(words[2..], [&*retryable.to_string(), &*after.to_string(), allow]);
        assert_eq!(response.header("x-own"), Some(&*format!("/idempotency#{code}")));
        assert_eq!((response.header("link"), response.header("retry-after")), (None, None));
    }
}

#[test]
fn the_application_renders_the_problem_of_a_misconfigured_handler() {
    let app = app(|builder| builder.problems(custom_rendering));
    let server = app.serve(|config: &mut ServiceConfig| {
        config.service(misconfigured::maybe);
    });
    let refused = server.send(&Request::post("/maybe").key("k"));
    assert_eq!((refused.status, refused.text()), (500, "misconfigured /maybe false false -"));
}

#[test]
fn a_server_that_shuts_down_closes_the_connections_of_those_that_it_refuses() {
    let app = TestApp::new();
    let server = app.serve(all);
    assert_eq!(server.send(&pay("first")).header("connection"), None);
    assert!(wait_for("the end of all work", app.idempotency.drain(Duration::from_secs(5))));
    let refused = server.send(&pay("k"));
    assert_problem(&refused, 503, "shutting_down", true);
    assert_eq!(refused.header("connection"), Some("close"));
}
