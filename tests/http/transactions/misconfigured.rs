//! Handlers that take a `Tx` that their application cannot provide.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use actix_web::{App, HttpResponse, post, web::Data};
use idempotent_actix::{Idempotency, Tx, idempotent, scope, store::MemoryStore};
use test_support::{Probe, Server, TestApp, wait_for};

use super::{CLAIMS, database::Database, handlers, send};
use crate::handlers::assert_problem;

#[test]
fn a_misconfigured_application_is_reported_with_a_remedy() {
    test_support::log::capture();
    let (sqlite, postgres) = (Database::sqlite(Probe::new()), Database::postgres(Probe::new()));
    let server = sqlite.serve();
    assert_problem(&server.send(&send("/two-transactions", "")), 500, "misconfigured", false);
    assert_problem(&server.send(&send("/unannotated", "")), 500, "misconfigured", false);
    let (probe, memory) = (sqlite.probe.clone(), Idempotency::new(MemoryStore::new()));
    let wrong = [
        (memory, handlers::sqlite::all as fn(&mut _)),
        (postgres.idempotency(), handlers::sqlite::all),
    ];
    for (idempotency, all) in wrong {
        let probe = probe.clone();
        let server = Server::start(move || {
            App::new()
                .app_data(idempotency.clone())
                .app_data(Data::new(probe.clone()))
                .configure(all)
        });
        for path in CLAIMS {
            assert_problem(&server.send(&send(path, "an effect")), 500, "misconfigured", false);
        }
    }
    assert_eq!(sqlite.probe.runs(), 0);
    let log = test_support::log::captured();
    for message in [
        "takes two `Tx`",
        "without `#[idempotent]` takes a `Tx`",
        "takes a `Tx` of SQLite, and the store has no transactions (`MemoryStore`, built at ",
        "; use `SqliteStore`, `PostgresStore` or `MySqlStore`",
        "takes a `Tx` of SQLite, a different database than the store's (`Arc<dyn ",
    ] {
        assert!(log.contains(message), "{message}");
    }
}

#[idempotent(scope = "scope::global")]
#[post("/with-postgres")]
async fn with_postgres(_tx: Tx<sqlx::Postgres>) -> HttpResponse {
    HttpResponse::Ok().finish()
}

type PgTx = Tx<sqlx::Postgres>;

/// What the macro cannot see: an alias, and a `Tx` that an alternative of `cfg` takes.
#[idempotent(scope = "scope::global")]
#[post("/with-alias")]
async fn with_alias(#[cfg(not(miri))] _tx: PgTx) -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[idempotent(scope = "scope::global")]
#[post("/with-optional-alias")]
async fn with_optional_alias(_tx: Option<PgTx>) -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[test]
fn a_check_names_the_handlers_that_cannot_run() {
    let (app, sqlite) = (TestApp::new(), Database::sqlite(Probe::new()));
    let check = || format!("{:?}", wait_for("the check", app.idempotency.check()).unwrap_err());
    // Other tests of this program may have handles in Postgres.
    let began = Instant::now();
    let mut refused = check();
    while !refused.contains("take a `Tx`") && began.elapsed() < Duration::from_secs(120) {
        sleep(Duration::from_millis(1));
        refused = check();
    }
    for handler in ["with_postgres", "with_alias", "with_optional_alias"] {
        assert!(refused.contains(&format!("`{handler}` (PostgreSQL)")), "{refused}");
    }
    let postgres = Database::postgres(Probe::new());
    // Some tests have several programs in this one.
    let refused = check();
    assert!(refused.contains("have the same `name = "), "{refused}");
    drop((sqlite, postgres));
}
