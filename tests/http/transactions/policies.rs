//! Two versions of one operation on a database: one claims by lease and one in the transaction, or
//! their arguments differ otherwise.

use actix_web::{App, web::Data};
use test_support::{ClientResponse, Probe, Request, Server};

use super::{BOTH, database::Database};
use crate::handlers::assert_problem;

macro_rules! versions {
    ($database:ident, $type:ty, $($module:ident $(, $key:ident = $value:literal)*;)*) => {
        pub(super) mod $database {
            $(pub(crate) mod $module {
                use actix_web::{HttpResponse, post, web::Data};
                use idempotent_actix::{Tx, idempotent};
                use test_support::Probe;

                use crate::handlers::User;

                #[idempotent(scope = "_user", name = "rolled within" $(, $key = $value)*)]
                #[post("/rolled")]
                pub(crate) async fn rolled(
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
    leased;
    within, claim = "transaction";
    json, claim = "transaction", fingerprint = "json";
    held, abandoned = "hold";
}
versions! { postgres, sqlx::Postgres,
    leased;
    within, claim = "transaction";
    json, claim = "transaction", fingerprint = "json";
    held, abandoned = "hold";
}

/// Serves one version of the operation, with a separate handle on the database.
macro_rules! serve {
    ($database:expr, $version:ident) => {{
        let (idempotency, probe) = ($database.idempotency(), $database.probe.clone());
        let is_postgres = $database.is_postgres();
        Server::start(move || {
            let (idempotency, probe) = (idempotency.clone(), Data::new(probe.clone()));
            App::new().app_data(idempotency).app_data(probe).configure(move |config| {
                if is_postgres {
                    config.service(postgres::$version::rolled);
                } else {
                    config.service(sqlite::$version::rolled);
                }
            })
        })
    }};
}

fn send() -> Request {
    Request::post("/rolled").user("alice").key("k").json("{\"amount\":1}")
}

/// A response that reports that nothing was run, whatever the database does with the other attempt.
#[track_caller]
fn assert_not_run(response: &ClientResponse) {
    let problem = response.problem();
    assert!(
        [(409, "in_flight"), (503, "store_unavailable")].contains(&(problem.0, &problem.1)),
        "{response:?}"
    );
}

/// The other instance. SQLite's file has one writer, so the instance shares the handle.
fn elsewhere(database: &Database) -> Option<Database> {
    database.is_postgres().then(|| database.elsewhere())
}

#[test]
fn a_lease_and_a_transaction_exclude_each_other() {
    for open in BOTH {
        for leased_first in [true, false] {
            let database = open(Probe::new());
            let other = elsewhere(&database);
            let other = other.as_ref().unwrap_or(&database);
            let (leased, within) = (serve!(database, leased), serve!(other, within));
            let [first, second] =
                if leased_first { [&leased, &within] } else { [&within, &leased] };
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
            database.assert_nothing_is_open();
        }
    }
}

#[test]
fn two_forms_of_the_fingerprint_are_a_mismatch() {
    for open in BOTH {
        let database = open(Probe::new());
        let (leased, json) = (serve!(database, leased), serve!(database, json));
        let done = leased.send(&send());
        assert_eq!(done.status, 201);
        assert_problem(&json.send(&send()), 422, "key_reused", false);
        leased.send(&send()).assert_replays(&done);
        assert_eq!((database.probe.runs(), database.counts()), (1, (1, 1)));
    }
}

#[test]
fn the_more_careful_way_to_abandon_counts() {
    for open in BOTH {
        for held_first in [true, false] {
            let database = open(Probe::responding(|_| panic!("the handler fails")));
            let (leased, held) = (serve!(database, leased), serve!(database, held));
            let [first, second] = if held_first { [&held, &leased] } else { [&leased, &held] };
            assert_eq!(first.send(&send()).status, 500);
            assert_problem(&second.send(&send()), 409, "outcome_unknown", false);
            assert_eq!((database.probe.runs(), database.counts()), (1, (0, 0)));
        }
    }
}
