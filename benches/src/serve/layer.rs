//! The layer, as an application uses it.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, post, web};
use bytes::Bytes;
use idempotent_actix::{
    Idempotency, ScopeId, Tx, idempotent, scope,
    store::{self, MemoryStore, Store},
};
use idempotent_core::{
    BodyForm, Digester, Key, Policy, RecordId, Runtime,
    runtime::{Admission, RuntimeOptions},
};
use sqlx::{Postgres, Sqlite};

use super::{Size, answer, created, floor, work};
use crate::arguments::Arguments;

pub(super) async fn open(arguments: &Arguments, url: &str) -> Idempotency {
    if url == "memory:" {
        // As many as a fast run leaves; the store's own bounds are reached in seconds.
        let records = arguments.number("records", 100_000_000);
        return over(MemoryStore::new().max_records(records).max_bytes(1 << 40), arguments);
    }
    let store = store::connect(url).await.unwrap();
    store.migrate().await.unwrap();
    hold(store.clone(), arguments.number("leases", 0)).await;
    over(store, arguments)
}

fn over(store: impl Store, arguments: &Arguments) -> Idempotency {
    // Where there is nothing to say of it, the default.
    match arguments.text("purge-every") {
        Some(_) => Idempotency::builder(store).purge_every(Some(arguments.seconds("purge-every", 60.0))).build(),
        None => Idempotency::new(store),
    }
}

/// Keeps so many attempts at work, whose leases are renewed every second.
async fn hold(store: impl Store, leases: usize) {
    if leases == 0 {
        return;
    }
    let runtime = Runtime::new(store, RuntimeOptions::default());
    let policy = Policy { lease: Duration::from_secs(3), ..Policy::DEFAULT };
    for number in 0..leases {
        let key = Key::parse(format!("held-{number}").as_bytes()).unwrap();
        let id = RecordId::new(env!("CARGO_PKG_NAME"), &ScopeId::new("bench"), "hold", &key);
        let digest = Digester::new("POST", "/", "", b"", BodyForm::Raw).finish();
        let Admission::Proceed(attempt) = runtime.begin(id, digest, &policy).await.unwrap() else {
            panic!("the key is new")
        };
        // It ends with the process.
        std::mem::forget(attempt);
    }
    std::mem::forget(runtime);
}

pub(super) fn routes(kind: &str, store: &str, app: &mut web::ServiceConfig) {
    match (kind, store.split(':').next()) {
        ("layer", _) => app.service(guarded),
        ("layer-briefly", _) => app.service(briefly),
        ("layer-transaction", Some("postgres")) => app.service(postgres_transaction),
        ("layer-transaction", _) => app.service(sqlite_transaction),
        ("layer-lease", Some("postgres")) => app.service(postgres_lease),
        ("layer-lease", _) => app.service(sqlite_lease),
        (other, _) => panic!("there is no `{other}`"),
    };
}

#[idempotent(scope = "scope::bearer_token", ttl = "24h")]
#[post("/work")]
async fn guarded(body: Bytes, size: web::Data<Size>) -> HttpResponse {
    work(&body, &size)
}

/// Its records are soon to be purged.
#[idempotent(scope = "scope::bearer_token", ttl = "4s", lease = "2s")]
#[post("/work")]
async fn briefly(body: Bytes, size: web::Data<Size>) -> HttpResponse {
    work(&body, &size)
}

/// The same handlers as the floor's, but for the transaction that they are given.
macro_rules! with_effects {
    ($($name:ident: $database:ty, $claim:literal, $insert:expr;)*) => {$(
        #[idempotent(scope = "scope::bearer_token", ttl = "24h", claim = $claim)]
        #[post("/work")]
        async fn $name(request: HttpRequest, body: Bytes, size: web::Data<Size>, mut tx: Tx<$database>) -> HttpResponse {
            let answer = answer(&body, &size);
            sqlx::query($insert).bind(floor::id(&request)).bind(&answer[..]).execute(&mut *tx).await.unwrap();
            created(answer)
        }
    )*};
}

with_effects! {
    postgres_transaction: Postgres, "transaction", floor::postgres::EFFECT;
    postgres_lease: Postgres, "lease", floor::postgres::EFFECT;
    sqlite_transaction: Sqlite, "transaction", floor::sqlite::EFFECT;
    sqlite_lease: Sqlite, "lease", floor::sqlite::EFFECT;
}
