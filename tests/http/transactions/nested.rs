//! Operations that begin inside a handler with an open transaction.

use std::time::{Duration, Instant};

use actix_web::{App, HttpResponse, post, web::Data};
use idempotent_actix::{
    Idempotency, Key, Tx, idempotent,
    job::{Failure, Job, RunError},
    scope::ScopeId,
};
use sqlx::Sqlite;
use test_support::{Probe, Server};

use super::{super::handlers::User, database::Database, send};

#[idempotent(scope = "_user")]
#[post("/nested")]
async fn nested(_user: User, idempotency: Data<Idempotency>, mut tx: Tx<Sqlite>) -> HttpResponse {
    const INNER: Job = Job::new("inner");
    let insert = "INSERT INTO effects (note) VALUES ('outer')";
    let connection = tx.connection().await.unwrap();
    sqlx::query(insert).execute(connection).await.unwrap();
    let began = Instant::now();
    let key = Key::from_text("k").unwrap();
    let work = |_| async { Ok::<u32, Failure>(1) };
    match idempotency.run(&INNER, &ScopeId::global(), &key, &1, work).await {
        Err(RunError::Store { source, .. }) if !source.is_transient() => {
            assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
            HttpResponse::Created().finish()
        }
        other => panic!("{other:?}"),
    }
}

/// It would wait for the transaction, which waits for it.
#[test]
fn on_sqlite_a_run_inside_a_handler_with_an_open_transaction_fails_at_once() {
    let database = Database::sqlite(Probe::new());
    let idempotency = database.idempotency();
    let server = Server::start(move || {
        let data = Data::new(idempotency.clone());
        App::new().app_data(idempotency.clone()).app_data(data).service(nested)
    });
    assert_eq!(server.send(&send("/nested", "")).status, 201);
    assert_eq!(database.counts(), (1, 1));
}
