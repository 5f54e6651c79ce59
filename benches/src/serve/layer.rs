//! The layer, used as an application uses it.

use actix_web::{HttpRequest, HttpResponse, post, web};
use bytes::Bytes;
use idempotent_actix::{Operation, OperationError, Tx, idempotent, scope};
use sqlx::{Postgres, Sqlite};

use super::{STEP_RESULT, Size, created, floor, response, work};

pub(super) fn routes(kind: &str, store: &str, app: &mut web::ServiceConfig) {
    match (kind, store.split(':').next()) {
        ("layer" | "layer-alone", _) => app.service(guarded),
        ("layer-step", _) => app.service(with_step),
        ("layer-short-ttl", _) => app.service(short_ttl),
        ("layer-steady", _) => app.service(steady),
        ("layer-transaction", Some("postgres")) => app.service(postgres_transaction),
        #[cfg(feature = "mysql")]
        ("layer-transaction", Some("mysql")) => app.service(mysql_transaction),
        ("layer-transaction", _) => app.service(sqlite_transaction),
        ("layer-lease", Some("postgres")) => app.service(postgres_lease),
        #[cfg(feature = "mysql")]
        ("layer-lease", Some("mysql")) => app.service(mysql_lease),
        ("layer-lease", _) => app.service(sqlite_lease),
        (other, _) => panic!("there is no contestant `{other}`"),
    };
}

#[idempotent(scope = "scope::bearer_token", ttl = "24h")]
#[post("/work")]
async fn guarded(body: Bytes, size: web::Data<Size>) -> HttpResponse {
    work(&body, &size)
}

/// Records one step, between the claim and the completion.
#[idempotent(scope = "scope::bearer_token", ttl = "24h")]
#[post("/work")]
async fn with_step(
    body: Bytes,
    size: web::Data<Size>,
    operation: Operation,
) -> actix_web::Result<HttpResponse> {
    let step = operation.step("work");
    step.run(async |_| Ok::<_, OperationError>(STEP_RESULT.to_vec())).await?;
    Ok(work(&body, &size))
}

/// Has a short ttl, so that its records are purged soon.
#[idempotent(scope = "scope::bearer_token", ttl = "4s", lease = "2s")]
#[post("/work")]
async fn short_ttl(body: Bytes, size: web::Data<Size>) -> HttpResponse {
    work(&body, &size)
}

/// Has so short a ttl that a run of seconds reaches a steady state, in which as many records are
/// purged as arrive.
#[idempotent(scope = "scope::bearer_token", ttl = "1s", lease = "500ms")]
#[post("/work")]
async fn steady(body: Bytes, size: web::Data<Size>) -> HttpResponse {
    work(&body, &size)
}

/// The handlers of `floor-effect`, with `Tx` instead of a transaction that they begin themselves.
macro_rules! with_effects {
    ($($name:ident: $database:ty, $claim:literal, $insert:expr;)*) => {$(
        #[idempotent(scope = "scope::bearer_token", ttl = "24h", claim = $claim)]
        #[post("/work")]
        async fn $name(
            request: HttpRequest,
            body: Bytes,
            size: web::Data<Size>,
            mut tx: Tx<$database>,
        ) -> HttpResponse {
            let response = response(&body, &size);
            let insert = sqlx::query($insert).bind(floor::id(&request)).bind(&response[..]);
            insert.execute(tx.connection().await.unwrap()).await.unwrap();
            created(response)
        }
    )*};
}

with_effects! {
    postgres_transaction: Postgres, "transaction", floor::postgres::EFFECT;
    postgres_lease: Postgres, "lease", floor::postgres::EFFECT;
    sqlite_transaction: Sqlite, "transaction", floor::sqlite::EFFECT;
    sqlite_lease: Sqlite, "lease", floor::sqlite::EFFECT;
}

#[cfg(feature = "mysql")]
with_effects! {
    mysql_transaction: sqlx::MySql, "transaction", floor::mysql::EFFECT;
    mysql_lease: sqlx::MySql, "lease", floor::mysql::EFFECT;
}
