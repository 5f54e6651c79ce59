//! Two versions of one operation on a database: they differ in the kind of claim, or in other
//! arguments.

use actix_web::{App, web::Data};
use test_support::{ClientResponse, Probe, Request, Server};

use super::{DATABASES, database::Database};
use crate::handlers::assert_problem;

macro_rules! versions {
    ($database:ident, $type:ty, $($module:ident $(, $key:ident = $value:literal)*;)*) => {
        pub(super) mod $database {
            $(pub(crate) mod $module {
                use actix_web::{HttpResponse, post, web::Data};
                use idempotent_actix::{Tx, idempotent};
                use test_support::Probe;

                use crate::handlers::User;

                #[idempotent(scope = "_user", name = "pay with effects" $(, $key = $value)*)]
                #[post("/pay-with-effects")]
                pub(crate) async fn pay_with_effects(
                    _user: User,
                    probe: Data<Probe>,
                    mut tx: Tx<$type>,
                    body: String,
                ) -> HttpResponse {
                    let insert = sqlx::query("INSERT INTO effects (note, record) VALUES ($1, $2)");
                    let record = tx.record_id().unwrap().as_bytes().to_vec();
                    let insert = insert.bind(body).bind(record);
                    insert.execute(tx.connection().await.unwrap()).await.unwrap();
                    probe.run().await
                }
            })*
        }
    };
}

versions! { sqlite, sqlx::Sqlite,
    lease;
    transaction, claim = "transaction";
    json, claim = "transaction", fingerprint = "json";
    held, abandoned = "hold";
}
versions! { postgres, sqlx::Postgres,
    lease;
    transaction, claim = "transaction";
    json, claim = "transaction", fingerprint = "json";
    held, abandoned = "hold";
}

/// Serves one version of the operation.
macro_rules! serve {
    ($database:expr, $version:ident) => {{
        let (idempotency, probe) = ($database.idempotency(), $database.probe.clone());
        let is_postgres = $database.is_postgres();
        Server::start(move || {
            let (idempotency, probe) = (idempotency.clone(), Data::new(probe.clone()));
            App::new().app_data(idempotency).app_data(probe).configure(move |config| {
                if is_postgres {
                    config.service(postgres::$version::pay_with_effects);
                } else {
                    config.service(sqlite::$version::pay_with_effects);
                }
            })
        })
    }};
}

fn send() -> Request {
    Request::post("/pay-with-effects").user("alice").key("k").json("{\"amount\":1}")
}

/// Asserts that a response reports that nothing was run. Which response it is depends on the
/// database.
#[track_caller]
fn assert_not_run(response: &ClientResponse) {
    let problem = response.problem();
    assert!(
        [(409, "in_flight"), (503, "store_unavailable")].contains(&(problem.0, &problem.1)),
        "{response:?}"
    );
}

/// The database as another process sees it. `None` for SQLite, whose file has one writer: there
/// both servers share the handle.
fn other_process(database: &Database) -> Option<Database> {
    database.is_postgres().then(|| database.other_process())
}

#[test]
fn a_lease_and_a_transaction_exclude_each_other() {
    for open in DATABASES {
        for lease_first in [true, false] {
            let database = open(Probe::new());
            let other = other_process(&database);
            let other = other.as_ref().unwrap_or(&database);
            let (lease, transaction) = (serve!(database, lease), serve!(other, transaction));
            let [first, second] =
                if lease_first { [&lease, &transaction] } else { [&transaction, &lease] };
            database.probe.hold();
            let running = first.begin(&send());
            database.probe.await_runs(1);
            assert_not_run(&second.send(&send()));
            database.probe.release_all();
            let done = running.response();
            assert_eq!((done.status, database.counts()), (201, (1, 1)));
            second.send(&send()).assert_replays(&done);
            first.send(&send()).assert_replays(&done);
            assert_eq!((database.probe.runs(), database.counts()), (1, (1, 1)));
            database.drain_and_assert_no_open_transaction();
        }
    }
}

#[test]
fn two_forms_of_the_fingerprint_are_a_mismatch() {
    for open in DATABASES {
        let database = open(Probe::new());
        let (lease, json) = (serve!(database, lease), serve!(database, json));
        let done = lease.send(&send());
        assert_eq!(done.status, 201);
        assert_problem(&json.send(&send()), 422, "key_reused", false);
        lease.send(&send()).assert_replays(&done);
        assert_eq!((database.probe.runs(), database.counts()), (1, (1, 1)));
    }
}

#[test]
fn hold_applies_if_either_version_declares_it() {
    for open in DATABASES {
        for held_first in [true, false] {
            let database = open(Probe::responding(|_| panic!("the handler fails")));
            let (lease, held) = (serve!(database, lease), serve!(database, held));
            let [first, second] = if held_first { [&held, &lease] } else { [&lease, &held] };
            assert_eq!(first.send(&send()).status, 500);
            assert_problem(&second.send(&send()), 409, "outcome_unknown", false);
            assert_eq!((database.probe.runs(), database.counts()), (1, (0, 0)));
        }
    }
}
