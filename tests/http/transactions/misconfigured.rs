//! Handlers that take a `Tx` that their application cannot provide.

use actix_web::{App, web::Data};
use idempotent_actix::{Idempotency, store::MemoryStore};
use test_support::{Probe, Server};

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
        "; use `SqliteStore` or `PostgresStore`",
        "takes a `Tx` of SQLite, a different database than the store's (`Arc<dyn ",
    ] {
        assert!(log.contains(message), "{message}");
    }
}
