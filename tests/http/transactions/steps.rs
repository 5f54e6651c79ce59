//! Steps and references of handlers with a transaction, and handlers that are resumed.

use actix_web::{App, HttpResponse, post, rt::System, web, web::Data};
use idempotent_actix::{Operation, Tx, idempotent, store::Snapshot};
use test_support::{Probe, Request, Server};

use super::{DATABASES, Open, database::Database};
use crate::handlers::{User, assert_problem};

macro_rules! handlers {
    ($name:ident, $database:ty, $connection:ty) => {
        mod $name {
            use super::*;

            #[idempotent(scope = "_user", name = "steps")]
            #[post("/steps")]
            async fn steps(
                _user: User,
                operation: Operation,
                tx: Tx<$database>,
                probe: Data<Probe>,
                body: String,
            ) -> actix_web::Result<HttpResponse> {
                operation.set_input(&body)?;
                finish(operation, tx, probe.get_ref().clone(), body).await
            }

            #[idempotent(scope = "_user", claim = "transaction")]
            #[post("/in_transaction")]
            async fn in_transaction(
                _user: User,
                operation: Operation,
                tx: Tx<$database>,
                probe: Data<Probe>,
                body: String,
            ) -> actix_web::Result<HttpResponse> {
                finish(operation, tx, probe.get_ref().clone(), body).await
            }

            async fn charge(operation: &Operation, probe: &Probe) -> actix_web::Result<u32> {
                let charge = operation.step("charge");
                charge.run(|_| async { Ok(probe.note("charge")) }).await.map(|()| 1)
            }

            async fn insert(connection: &mut $connection) -> actix_web::Result<u32> {
                let insert = sqlx::query("INSERT INTO effects (note) VALUES ('entry')");
                insert.execute(connection).await.unwrap();
                Ok(2)
            }

            pub(super) async fn finish(
                operation: Operation,
                mut tx: Tx<$database>,
                probe: Probe,
                body: String,
            ) -> actix_web::Result<HttpResponse> {
                match body.as_str() {
                    "step after the transaction" => {
                        tx.connection().await?;
                        charge(&operation, &probe).await?;
                    }
                    "progress after the transaction" => {
                        tx.connection().await?;
                        operation.progress("1 of 2").await?;
                    }
                    "transaction in a step" => {
                        let step = operation
                            .step("charge")
                            .run(|_| async { insert(tx.connection().await?).await });
                        step.await?;
                    }
                    "in the transaction" => {}
                    _ => drop(charge(&operation, &probe).await?),
                }
                let response = probe.run().await;
                let entry = operation.step("entry");
                entry.run_in(&mut tx, async |connection| insert(connection).await).await?;
                operation.set_reference("order_7").await?;
                Ok(response)
            }

            pub(super) fn all(config: &mut web::ServiceConfig) {
                config.service(steps).service(in_transaction);
            }
        }
    };
}

handlers!(sqlite, sqlx::Sqlite, sqlx::SqliteConnection);
handlers!(postgres, sqlx::Postgres, sqlx::PgConnection);

fn serve(database: &Database) -> Server {
    let (idempotency, probe) = (database.idempotency(), database.probe.clone());
    let all = if database.is_postgres() { postgres::all } else { sqlite::all };
    Server::start(move || {
        let app = App::new().app_data(idempotency.clone()).app_data(Data::new(probe.clone()));
        app.configure(all)
    })
}

/// Runs one pass of a completer, and returns how many operations it has resumed.
fn pass(database: &Database) -> usize {
    let (completer, probe) = (database.idempotency().completer(), database.probe.clone());
    let completer = if database.is_postgres() {
        completer.resume_with("steps", move |operation, tx, body| {
            postgres::finish(operation, tx, probe.clone(), body)
        })
    } else {
        completer.resume_with("steps", move |operation, tx, body| {
            sqlite::finish(operation, tx, probe.clone(), body)
        })
    };
    System::new().block_on(completer.pass()).unwrap()
}

fn record(database: &Database, operation: &str) -> Snapshot {
    let (scope, key) = (idempotent_actix::scope::ScopeId::of("user", "alice"), "k".to_owned());
    let key = idempotent_actix::Key::from_text(key).unwrap();
    let id = database.idempotency().record_id(&scope, operation, &key).unwrap();
    test_support::wait_for("the record", database.idempotency().find_record(&id)).unwrap().unwrap()
}

fn on_each_database(probe: impl Fn() -> Probe, case: impl Fn(&Database, &Server)) {
    for open in DATABASES as [Open; 2] {
        let database = open(probe());
        let server = serve(&database);
        case(&database, &server);
        database.drain_and_assert_no_open_transaction();
    }
}

fn send(path: &str, body: &str) -> Request {
    Request::post(path).user("alice").key("k").body(body)
}

/// A probe whose first run panics.
fn first_run_panics() -> Probe {
    Probe::responding(|run| {
        assert!(run > 1, "after the charge");
        HttpResponse::Created().finish()
    })
}

#[test]
fn a_step_in_the_transaction_is_committed_with_the_response() {
    for (path, body, operation) in [
        ("/steps", "b", "steps"),
        ("/in_transaction", "in the transaction", "POST /in_transaction"),
    ] {
        on_each_database(Probe::new, |database, server| {
            let first = server.send(&send(path, body));
            assert_eq!((first.status, database.counts()), (201, (1, 1)), "{}", first.text());
            server.send(&send(path, body)).assert_replays(&first);
            let record = record(database, operation).record;
            assert_eq!(
                (record.status, record.notes.reference.as_deref()),
                (Some(201), Some("order_7"))
            );
            assert_eq!(database.counts(), (1, 1));
        });
    }
}

#[test]
fn a_handler_with_a_transaction_is_finished_without_its_client() {
    on_each_database(first_run_panics, |database, server| {
        assert_problem(&server.send(&send("/steps", "b")), 500, "handler_failed", true);
        assert_eq!((pass(database), pass(database)), (1, 0));
        assert_eq!((database.counts(), database.probe.notes().len()), ((1, 1), 1));
        let replay = server.send(&send("/steps", "b"));
        assert_eq!((replay.status, replay.is_replay()), (201, true));
        assert_eq!(record(database, "steps").record.notes.reference.as_deref(), Some("order_7"));
    });
}

#[test]
fn a_step_apart_from_an_open_transaction_is_refused() {
    for body in
        ["step after the transaction", "progress after the transaction", "transaction in a step"]
    {
        on_each_database(Probe::new, |database, server| {
            assert_problem(&server.send(&send("/steps", body)), 500, "handler_failed", true);
            assert_eq!((database.counts().0, database.probe.runs()), (0, 0), "{body}");
        });
    }
    on_each_database(Probe::new, |database, server| {
        let refused = server.send(&send("/in_transaction", "a step"));
        assert_problem(&refused, 500, "handler_failed", true);
        assert_eq!((database.counts(), database.probe.notes().len()), ((0, 0), 0));
    });
}

#[test]
fn a_failure_rolls_a_step_in_the_transaction_back() {
    let conflict = || Probe::responding(|_| HttpResponse::Conflict().finish());
    on_each_database(conflict, |database, server| {
        let first = server.send(&send("/steps", "b"));
        assert_eq!((first.status, database.counts()), (409, (0, 1)));
        server.send(&send("/steps", "b")).assert_replays(&first);
        assert_eq!(record(database, "steps").record.notes.reference.as_deref(), Some("order_7"));
    });
}
