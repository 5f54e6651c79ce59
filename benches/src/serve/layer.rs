//! The layer, used as an application uses it.

use std::{sync::Arc, time::Duration};

use actix_web::{HttpRequest, HttpResponse, post, web};
use bytes::Bytes;
use idempotent_actix::{
    Idempotency, Operation, OperationError, Tx, idempotent,
    scope::{self, ScopeId},
    store::{self, MemoryStore, PostgresStore, SqliteStore, Store},
};
use idempotent_core::{
    BodyForm, Digester, Key, Policy, RecordId, Runtime,
    runtime::{Admission, RuntimeOptions},
};
use sqlx::{Postgres, Sqlite};

use super::{Options, STEP_RESULT, Size, created, floor, response, work};

pub(super) async fn open(options: &Options) -> Idempotency {
    if options.store == "memory:" {
        return build(MemoryStore::new().max_records(options.records).max_bytes(1 << 40), options);
    }
    let store = if options.kind == "layer-alone" {
        without_batches(&options.store).await
    } else {
        store::connect(&options.store).await.unwrap()
    };
    store.migrate().await.unwrap();
    hold_leases(store.clone(), options.leases).await;
    build(store, options)
}

/// Opens a store that executes each claim and each completion alone.
async fn without_batches(url: &str) -> Arc<dyn Store> {
    if url.starts_with("postgres") {
        Arc::new(PostgresStore::connect(url).await.unwrap().group_commit(false))
    } else {
        Arc::new(SqliteStore::connect(url).await.unwrap().group_commit(false))
    }
}

fn build(store: impl Store, options: &Options) -> Idempotency {
    match options.purge_every {
        Some(_) => Idempotency::builder(store).purge_every(options.purge_every).build(),
        None => Idempotency::new(store),
    }
}

/// Keeps `leases` attempts in flight, whose leases are renewed every second.
async fn hold_leases(store: impl Store, leases: usize) {
    if leases == 0 {
        return;
    }
    let runtime = Runtime::new(store, RuntimeOptions::default());
    let policy = Policy::DEFAULT.with_lease(Duration::from_secs(3));
    for number in 0..leases {
        let key = Key::parse(format!("held-{number}").as_bytes()).unwrap();
        let id = RecordId::new(env!("CARGO_PKG_NAME"), &ScopeId::new("bench"), "hold", &key);
        let digest = Digester::new("POST", "/", "", b"", BodyForm::Raw).finish();
        let Admission::Proceed(attempt) = runtime.begin(id, digest, &policy).await.unwrap() else {
            panic!("the key is not new")
        };
        // The attempt stays in flight until the process ends.
        std::mem::forget(attempt);
    }
    std::mem::forget(runtime);
}

pub(super) fn routes(kind: &str, store: &str, app: &mut web::ServiceConfig) {
    match (kind, store.split(':').next()) {
        ("layer" | "layer-alone", _) => app.service(guarded),
        ("layer-step", _) => app.service(with_step),
        ("layer-short-ttl", _) => app.service(short_ttl),
        ("layer-transaction", Some("postgres")) => app.service(postgres_transaction),
        ("layer-transaction", _) => app.service(sqlite_transaction),
        ("layer-lease", Some("postgres")) => app.service(postgres_lease),
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
