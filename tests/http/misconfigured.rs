//! Misconfigured applications: nothing runs, and the reason is logged once per request.

use actix_web::{
    App, HttpResponse, post,
    web::{self, Data, ServiceConfig},
};
use idempotent_actix::{Idempotency, Operation, Tx, idempotent, scope, store::MemoryStore};
use test_support::{Probe, Request, Server, TestApp, log};

use super::handlers::assert_problem;

#[idempotent(scope = "scope::global")]
#[post("/without-a-handle")]
async fn without_a_handle(_first: Operation, _second: Option<Operation>) -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[test]
fn a_missing_handle_is_logged_once_per_request() {
    log::capture();
    let server = Server::start(|| App::new().service(without_a_handle));
    for _ in 0..2 {
        assert_eq!(server.send(&Request::post("/without-a-handle").key("k")).status, 500);
    }
    let lines = log::captured();
    let lines = lines
        .lines()
        .filter(|line| line.contains("/without-a-handle") && line.contains("no `Idempotency`"));
    assert_eq!(lines.count(), 2);
}

#[idempotent(scope = "scope::global")]
#[post("/with-two-handles")]
async fn with_two_handles(_first: Operation, _second: Option<Operation>) -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[test]
fn two_handles_are_logged_once_per_request() {
    log::capture();
    let [one, other] = [TestApp::new(), TestApp::new()].map(|app| app.idempotency);
    let server = Server::start(move || {
        App::new()
            .app_data(one.clone())
            .app_data(Data::new(other.clone()))
            .service(with_two_handles)
    });
    assert_problem(
        &server.send(&Request::post("/with-two-handles").key("k")),
        500,
        "misconfigured",
        false,
    );
    let lines = log::captured();
    let lines: Vec<_> = lines.lines().filter(|line| line.contains("/with-two-handles")).collect();
    assert!(lines.len() == 1 && lines[0].contains("two `Idempotency`"), "{lines:?}");
}

/// A type alias, because the macro refuses an `Option<Tx<…>>` that it can see.
type OptionalTx = Option<Tx<sqlx::Sqlite>>;

#[idempotent(scope = "scope::global")]
#[post("/maybe")]
pub(crate) async fn maybe(_tx: OptionalTx, probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

#[test]
fn a_handler_does_not_run_without_the_transaction_that_it_takes_as_an_option() {
    let app = TestApp::new();
    let server = app.serve(|config: &mut ServiceConfig| {
        config.service(maybe);
    });
    assert_problem(&server.send(&Request::post("/maybe").key("k")), 500, "misconfigured", false);
    assert_eq!(app.probe.runs(), 0);
}

#[test]
fn a_handle_that_is_built_by_each_worker_is_logged() {
    log::capture();
    let server = Server::start(|| {
        App::new().app_data(Idempotency::new(MemoryStore::new())).service(without_a_handle)
    });
    assert_eq!(server.send(&Request::post("/without-a-handle").key("k")).status, 200);
    let reported =
        |line: &str| line.contains("ERROR") && line.contains("is built on a worker's thread");
    assert!(log::captured().lines().any(reported));
}

/// The types of a generic handler are not known to the check.
#[idempotent(scope = "scope::global", method = "POST")]
async fn generic<D: sqlx::Database>(_tx: Tx<D>) -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[test]
fn a_transaction_that_a_check_cannot_see_is_logged_once_with_handler_and_store() {
    let app = TestApp::new();
    let server = app.serve(|config| {
        config.service(
            web::resource("/generic-tx")
                .name("generic")
                .route(web::post().to(generic::<sqlx::Postgres>)),
        );
    });
    let refused = server.send(&Request::post("/generic-tx").key("k"));
    assert_problem(&refused, 500, "misconfigured", false);
    let lines = log::captured();
    let lines: Vec<_> = lines.lines().filter(|line| line.contains("/generic-tx")).collect();
    let [line] = lines[..] else { panic!("{lines:?}") };
    for part in ["ERROR", "handler=\"generic\"", "`Tx` of PostgreSQL", "`FaultyStore`, built at "] {
        assert!(line.contains(part), "{line}");
    }
}
