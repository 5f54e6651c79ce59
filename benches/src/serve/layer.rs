//! The layer, as an application uses it.

use actix_web::{HttpResponse, post, web};
use bytes::Bytes;
use idempotent_actix::{
    Idempotency, idempotent, scope,
    store::{self, MemoryStore},
};

use super::{Size, work};
use crate::arguments::Arguments;

pub(super) async fn open(arguments: &Arguments, url: &str) -> Idempotency {
    if url == "memory:" {
        // As many as a fast run leaves; the store's own bounds are reached in seconds.
        return Idempotency::new(MemoryStore::new().max_records(100_000_000).max_bytes(1 << 40));
    }
    let store = store::connect(url).await.unwrap();
    store.migrate().await.unwrap();
    if arguments.has("no-purge") {
        Idempotency::builder(store).purge_every(None).build()
    } else {
        Idempotency::new(store)
    }
}

pub(super) fn routes(kind: &str, app: &mut web::ServiceConfig) {
    match kind {
        "layer" => app.service(guarded),
        other => panic!("there is no `{other}`"),
    };
}

#[idempotent(scope = "scope::bearer_token", ttl = "24h")]
#[post("/work")]
async fn guarded(body: Bytes, size: web::Data<Size>) -> HttpResponse {
    work(&body, &size)
}
