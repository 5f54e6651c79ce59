//! What principals can learn from a key of another principal, in each state of the key.
//!
//! No matter which principal sends the key, the first operation never runs again and its response
//! is not disclosed. A request for a different operation (of another user or on another route) runs
//! whatever the state of the key, so the existence of the key is not disclosed (I7).

use std::future::{Ready, ready};

use actix_web::{
    Error, FromRequest, HttpRequest, HttpResponse,
    dev::Payload,
    error::ErrorForbidden,
    http::Method,
    post, route,
    web::{Data, ServiceConfig},
};
use idempotent_actix::idempotent;
use test_support::{ClientResponse, Pending, Probe, Request, Server, TestApp};

use super::handlers::User;

/// An optional principal; authorization is checked by the next extractor.
type OptionalUser = Option<User>;

/// An extractor that rejects every request once the permission was revoked.
struct Allowed;

impl FromRequest for Allowed {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let revoked =
            request.app_data::<Data<Probe>>().unwrap().notes().contains(&"revoked".to_owned());
        ready(if revoked { Err(ErrorForbidden("revoked")) } else { Ok(Self) })
    }
}

/// Handlers whose runs note their principal.
macro_rules! transfers {
    ($($name:ident $pattern:literal;)*) => { $(
        #[idempotent(scope = "user", abandoned = "hold")]
        #[route($pattern, method = "POST", method = "PUT")]
        async fn $name(
            user: OptionalUser,
            _allowed: Allowed,
            request: HttpRequest,
            probe: Data<Probe>,
        ) -> HttpResponse {
            probe.note(format!("run {} {} {}", user.unwrap().0, request.method(), request.path()));
            probe.run().await
        }
    )* };
}

transfers! {
    transfer "/accounts/{id}/transfers";
    withdraw "/accounts/{id}/withdrawals";
}

#[idempotent(scope = "user", abandoned = "hold", name = "deposit")]
#[route("/deposits/{id}", method = "POST", method = "PUT")]
async fn deposit(
    user: OptionalUser,
    _allowed: Allowed,
    method: Method,
    probe: Data<Probe>,
) -> HttpResponse {
    probe.note(format!("run {} {method} deposit", user.unwrap().0));
    probe.run().await
}

#[post("/unguarded")]
async fn unguarded() -> HttpResponse {
    HttpResponse::Ok().finish()
}

fn services(config: &mut ServiceConfig) {
    config.service(transfer).service(withdraw).service(deposit).service(unguarded);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyState {
    InFlight,
    Completed,
    Held,
}

/// A request with alice's key that follows her first one, and the expected response.
struct Row {
    description: &'static str,
    /// The target of alice's first request.
    first: &'static str,
    request: Request,
    /// Whether the permission is revoked between the two requests.
    revoked: bool,
    /// The expected status for each state: in flight, completed, held.
    status: [u16; 3],
    code: &'static str,
}

fn keyed(method: &str, target: &str) -> Request {
    Request::new(method, target).key("k").header("Content-Type", "text/plain").body("amount=1")
}

const FIRST: &str = "/accounts/1/transfers";

/// A row whose expected status is the same in each state.
fn row(description: &'static str, request: Request, status: u16, code: &'static str) -> Row {
    Row { description, first: FIRST, request, revoked: false, status: [status; 3], code }
}

fn matrix() -> Vec<Row> {
    let alice = |method: &str, target: &str| keyed(method, target).user("alice");
    vec![
        row("another user", keyed("POST", FIRST).user("mallory"), 201, ""),
        row("another user's other body", keyed("POST", FIRST).user("mallory").body("x"), 201, ""),
        row("another route", alice("POST", "/accounts/1/withdrawals"), 201, ""),
        row("another path parameter", alice("POST", "/accounts/2/transfers"), 422, "key_reused"),
        row(
            "an encoded path parameter",
            alice("POST", "/accounts/%31/transfers"),
            422,
            "key_reused",
        ),
        row("another query", alice("POST", "/accounts/1/transfers?a=1"), 422, "key_reused"),
        row("another body", alice("POST", FIRST).body("amount=2"), 422, "key_reused"),
        row("another method", alice("PUT", FIRST), 201, ""),
        Row {
            first: "/deposits/1",
            ..row("another method of one name", alice("PUT", "/deposits/1"), 422, "key_reused")
        },
        row("no principal", keyed("POST", FIRST), 401, "scope_missing"),
        row("an empty principal", keyed("POST", FIRST).user(""), 401, "scope_missing"),
        row("no key", Request::post(FIRST).user("alice").body("amount=1"), 400, "key_missing"),
        row("two keys", alice("POST", FIRST).key("k"), 400, "key_malformed"),
        Row {
            revoked: true,
            ..row("the owner, without permission", alice("POST", FIRST), 403, "")
        },
        Row {
            revoked: true,
            ..row("another user, without permission", keyed("POST", FIRST).user("mallory"), 403, "")
        },
        // A control: the owner of the key.
        Row { status: [409, 201, 409], ..row("the owner", alice("POST", FIRST), 0, "") },
    ]
}

/// Sends alice's first request and brings its key into a state. Returns the request if its response
/// is still pending.
fn first(app: &TestApp, server: &Server, state: KeyState, target: &str) -> Option<Pending> {
    app.probe.hold();
    let first = server.begin(&keyed("POST", target).user("alice"));
    app.probe.await_runs(1);
    if state == KeyState::InFlight {
        return Some(first);
    }
    app.probe.release_all();
    let response = first.response();
    assert_eq!(response.status, if state == KeyState::Held { 500 } else { 201 });
    None
}

/// An application whose first run panics if the state is to be held, and otherwise responds with a
/// secret. Other responses are harmless.
fn app(state: KeyState) -> TestApp {
    TestApp::responding(move |run| {
        assert!(run > 1 || state != KeyState::Held, "the first run panics");
        let text = if run == 1 { "the first run's secret" } else { "harmless" };
        HttpResponse::Created().insert_header(("x-secret-of", run.to_string())).body(text)
    })
}

fn assert_discloses_nothing(response: &ClientResponse, what: &str) {
    assert!(!response.text().contains("secret"), "{what}: {}", response.text());
    assert_ne!(response.header("x-secret-of"), Some("1"), "{what}");
    assert!(!response.is_replay(), "{what}");
}

fn check(row: &Row, state: KeyState) {
    let what = format!("{} while {state:?}", row.description);
    let app = app(state);
    let server = app.serve(services);
    let pending = first(&app, &server, state, row.first);
    if row.revoked {
        app.probe.note("revoked");
    }
    app.probe.release(2);
    let expected = row.status[state as usize];
    let owner = row.description == "the owner";
    let response = server.send(&row.request);
    assert_eq!(response.status, expected, "{what}: {}", response.text());
    if !row.code.is_empty() {
        assert_eq!(response.problem().1, row.code, "{what}");
    }
    let replay = owner && state == KeyState::Completed;
    if replay {
        assert!(response.is_replay(), "{what}");
    } else {
        assert_discloses_nothing(&response, &what);
    }
    let new_runs = usize::from(expected == 201 && !replay);
    assert_eq!(app.probe.runs(), 1 + new_runs, "{what}");
    let runs: Vec<_> =
        app.probe.notes().into_iter().filter(|note| note.starts_with("run ")).collect();
    assert_eq!(
        runs.iter().filter(|run| **run == runs[0]).count(),
        1,
        "{what}: the first operation ran again: {runs:?}"
    );
    app.probe.release_all();
    if let Some(pending) = pending {
        assert_eq!(
            pending.response().text(),
            "the first run's secret",
            "{what}: the first request did not get its response"
        );
    }
}

#[test]
fn no_principal_gets_the_response_of_another_and_no_operation_runs_twice() {
    let rows = matrix();
    for row in &rows {
        for state in [KeyState::InFlight, KeyState::Completed, KeyState::Held] {
            check(row, state);
        }
    }
    assert_eq!(rows.len(), 16);
}

#[test]
fn requests_of_other_principals_with_an_equal_key_do_not_affect_its_owner() {
    let app = app(KeyState::Completed);
    let server = app.serve(services);
    assert!(first(&app, &server, KeyState::Completed, FIRST).is_none());
    let request = keyed("POST", FIRST);
    assert_eq!(server.send(&request.clone().user("bob")).text(), "harmless");
    let replay = server.send(&request.user("alice"));
    assert_eq!((replay.text(), replay.is_replay()), ("the first run's secret", true));
    assert_eq!(app.probe.runs(), 2);
}
