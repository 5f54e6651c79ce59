//! How a refusal looks, byte for byte, in each of its renderings.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, web::ServiceConfig};
use idempotent_actix::{Problem, problem};
use tests::{Answer, Fault, Op, Probe, Request, Server, World, wait_for};

use super::{handlers::all, routing, scopes};

fn services(config: &mut ServiceConfig) {
    config.configure(scopes::services).configure(routing::services);
}

fn pay(key: &str) -> Request {
    Request::post("/payments").user("alice").key(key).body("b")
}

/// A world whose first run breaks down, with a limit that is easily met.
fn world(settings: impl FnOnce(idempotent_actix::IdempotencyBuilder) -> idempotent_actix::IdempotencyBuilder) -> World {
    let probe = Probe::answering(|run| {
        assert!(run > 1, "the handler breaks down");
        HttpResponse::Created().finish()
    });
    World::with(probe, |builder| settings(builder.body_limit(100)))
}

/// One refusal of each kind that a request can meet, in the order of their codes' table.
fn refusals(world: &World, server: &Server) -> Vec<Answer> {
    let mut answers = vec![
        server.send(&Request::post("/payments").user("alice")),
        server.send(&pay("k k")),
        server.send(&Request::post("/by-header").key("k")),
        server.send(&Request::new("GET", "/by-hand").user("alice").key("k")),
        server.send(&pay("k").body("b".repeat(101))),
        server.send(&Request::post("/careful").user("alice").key("k")),
        server.send(&Request::post("/careful").user("alice").key("k")),
        server.send(&Request::post("/careful").user("alice").key("k").body("other")),
    ];
    world.probe.hold();
    let first = server.begin(&pay("k"));
    world.probe.await_runs(2);
    answers.push(server.send(&pay("k")));
    world.probe.release_all();
    let _ = first.answer();
    world.store.fail(Op::Claim, 2, Fault::Before);
    answers.push(server.send(&pay("k")));
    assert!(wait_for("the end of all work", world.idempotency.drain(Duration::from_secs(5))));
    answers.push(server.send(&pay("k")));
    answers
}

/// Code, status, title, detail, and whether to retry.
const EXPECTED: [(&str, u16, &str, &str, bool); 11] = [
    (
        "key_missing",
        400,
        "This operation needs an idempotency key",
        "send a header line `idempotency-key` with a new UUID for each operation",
        false,
    ),
    (
        "key_malformed",
        400,
        "The idempotency key is malformed",
        "an unquoted key is made of visible ASCII characters other than the quote and the comma",
        false,
    ),
    (
        "scope_missing",
        401,
        "Nobody is known to send this key",
        "say who you are, so that your keys can be told from those of others",
        false,
    ),
    (
        "method_not_allowed",
        405,
        "This method is not allowed here",
        "GET is not guarded by idempotency keys here",
        false,
    ),
    ("body_too_large", 413, "The body is too large", "a body may have 100 bytes", false),
    (
        "handler_failed",
        500,
        "The operation was cut off by a fault",
        "part of the operation may have been done; keep the key",
        false,
    ),
    (
        "outcome_unknown",
        409,
        "A request with this idempotency key was cut off, and its outcome is not known",
        "ask what became of the first request; sending this one again does not help",
        false,
    ),
    (
        "key_reused",
        422,
        "This idempotency key was used for another request",
        "send another request with another key; nothing of this one was run",
        false,
    ),
    (
        "in_flight",
        409,
        "A request with this idempotency key is still at work",
        "wait for its answer, or send this request again later with the same key",
        true,
    ),
    (
        "store_unavailable",
        503,
        "Idempotency keys cannot be checked now",
        "nothing was run; send the request again with the same key",
        true,
    ),
    (
        "shutting_down",
        503,
        "The server is going down",
        "nothing was run; send the request again with the same key",
        true,
    ),
];

/// The headers that only some refusals have.
fn extra_headers(answer: &Answer) -> Vec<&str> {
    let always = ["cache-control", "content-length", "content-type", "link", "date"];
    let names = answer.headers.iter().map(|(name, _)| name.as_str());
    names.filter(|name| !always.contains(name)).collect()
}

#[test]
fn each_refusal_has_exactly_these_bytes_and_headers() {
    let world = world(|builder| builder);
    let server = world.serve(services);
    let answers = refusals(&world, &server);
    assert_eq!(answers.len(), EXPECTED.len());
    for (answer, (code, status, title, detail, retryable)) in answers.iter().zip(EXPECTED) {
        let bytes = format!(
            r#"{{"code":"{code}","detail":"{detail}","retryable":{retryable},"status":{status},"title":"{title}","type":"/idempotency#{code}"}}"#
        );
        assert_eq!((answer.status, answer.text()), (status, &*bytes));
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert_eq!(answer.header("link"), Some(&*format!("</idempotency#{code}>; rel=\"describedby\"")));
        let extra: &[_] = match code {
            "scope_missing" => &["www-authenticate"],
            "method_not_allowed" => &["allow"],
            "in_flight" | "store_unavailable" | "shutting_down" => &["retry-after"],
            // actix closes a connection whose body it did not read.
            "body_too_large" => &["connection"],
            _ => &[],
        };
        let seen: Vec<_> = extra_headers(answer).into_iter().filter(|name| *name != "connection").collect();
        let extra: Vec<_> = extra.iter().copied().filter(|name| *name != "connection").collect();
        assert_eq!(seen, extra, "{code}");
    }
}

#[test]
fn the_documentation_can_be_anywhere() {
    let world = world(|builder| builder.documentation("https://docs.example/errors/"));
    let server = world.serve(all);
    let refused = server.send(&Request::post("/payments").user("alice"));
    let url = "https://docs.example/errors/key_missing";
    assert_eq!(refused.json()["type"], url);
    assert_eq!(refused.header("link"), Some(&*format!("<{url}>; rel=\"describedby\"")));
}

#[test]
fn the_dialect_of_stripe_is_a_problem_with_what_its_libraries_look_for() {
    let world = world(|builder| builder.problems(problem::stripe));
    let server = world.serve(services);
    let answers = refusals(&world, &server);
    for (answer, (code, status, title, detail, retryable)) in answers.iter().zip(EXPECTED) {
        let (kind, stripes_code) = match code {
            "in_flight" => ("idempotency_error", "idempotency_key_in_use"),
            "key_reused" | "outcome_unknown" | "key_malformed" => ("idempotency_error", code),
            _ if status >= 500 => ("api_error", code),
            _ => ("invalid_request_error", code),
        };
        assert_eq!(answer.problem(), (status, code.to_owned()));
        let problem = answer.json();
        assert_eq!(
            problem["error"],
            serde_json::json!({
                "type": kind,
                "code": stripes_code,
                "message": format!("{title}: {detail}."),
                "doc_url": format!("/idempotency#{code}"),
            })
        );
        assert_eq!((&problem["title"], &problem["retryable"]), (&title.into(), &retryable.into()));
        assert_eq!(answer.header("stripe-should-retry"), Some(if retryable { "true" } else { "false" }));
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    }
}

#[test]
fn stripes_own_libraries_get_the_status_that_they_know_for_a_reused_key() {
    let world = World::set(|builder| builder.problems(problem::stripe));
    let server = world.serve(all);
    assert_eq!(server.send(&pay("k")).status, 201);
    let reused = server.send(&pay("k").body("other").header("X-Stripe-Client-User-Agent", "{}"));
    assert_eq!(reused.problem(), (400, "key_reused".into()));
    assert_eq!((&reused.json()["status"], &reused.json()["error"]["type"]), (&400.into(), &"idempotency_error".into()));
    assert_eq!(server.send(&pay("k").body("other")).problem(), (422, "key_reused".into()));
}

fn own(problem: &Problem, request: &HttpRequest) -> HttpResponse {
    let text = format!(
        "{} {} {} {:?}",
        problem.kind().code(),
        request.path(),
        problem.is_retryable(),
        problem.retry_after_seconds().is_some(),
    );
    HttpResponse::build(problem.kind().status()).insert_header(("x-own", problem.documentation())).body(text)
}

#[test]
fn the_app_can_render_problems_itself() {
    let world = world(|builder| builder.problems(own));
    let server = world.serve(services);
    for (answer, (code, status, _, _, retryable)) in refusals(&world, &server).iter().zip(EXPECTED) {
        let after = matches!(code, "in_flight" | "store_unavailable" | "shutting_down");
        let words: Vec<_> = answer.text().split(' ').collect();
        assert_eq!((answer.status, words[0]), (status, code));
        assert_eq!(words[2..], [retryable.to_string(), after.to_string()]);
        assert_eq!(answer.header("x-own"), Some(&*format!("/idempotency#{code}")));
        assert_eq!((answer.header("link"), answer.header("retry-after")), (None, None));
    }
}
