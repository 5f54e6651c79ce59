//! The layer's handle, with the store and the settings that the options name.

use std::{sync::Arc, time::Duration};

use idempotent_actix::{
    Idempotency,
    store::{self, MemoryStore, PostgresStore, SqliteStore, Store},
};
use sqlx::postgres::PgPoolOptions;

use super::Options;

/// The limit of recordings in memory, in bytes: more than any run creates.
const MAX_BYTES: usize = 1 << 40;
/// Settings of `layer-steady`: the limit of records, a multiple of those that live at a time, and
/// the time between purges.
const STEADY_RECORDS: usize = 1 << 18;
const STEADY_PURGES: Duration = Duration::from_secs(1);
/// The load has one principal, which may have as many operations in flight as it has connections.
const OPERATIONS: usize = 1 << 16;

/// Opens the store and builds the handle.
pub(super) async fn open(options: &Options) -> Idempotency {
    if options.store == "memory:" {
        let records = if options.kind == "layer-steady" { STEADY_RECORDS } else { options.records };
        return build(memory(records), options);
    }
    let store = connect(options).await;
    store.migrate().await.unwrap();
    build(store, options)
}

/// A store whose limits are those of its one principal.
fn memory(records: usize) -> MemoryStore {
    MemoryStore::new().max_records(records).max_bytes(MAX_BYTES).max_share(records, MAX_BYTES)
}

async fn connect(options: &Options) -> Arc<dyn Store> {
    let url = options.store.as_str();
    let grouped = options.kind != "layer-alone";
    if let Some(connections) = options.pool {
        let pool = PgPoolOptions::new().max_connections(connections).connect(url).await.unwrap();
        let options = PostgresStore::options().group_commit(grouped);
        return Arc::new(options.from_pool(pool).await.unwrap());
    }
    if grouped { store::connect(url).await.unwrap() } else { connect_alone(url).await }
}

/// A store without group commit.
async fn connect_alone(url: &str) -> Arc<dyn Store> {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("postgres") => {
            Arc::new(PostgresStore::options().group_commit(false).connect(url).await.unwrap())
        }
        #[cfg(feature = "mysql")]
        Some("mysql") => {
            let options = idempotent_actix::store::MySqlStore::options().group_commit(false);
            Arc::new(options.connect(url).await.unwrap())
        }
        _ => Arc::new(SqliteStore::options().group_commit(false).connect(url).await.unwrap()),
    }
}

fn build(store: impl Store, options: &Options) -> Idempotency {
    let builder = Idempotency::builder(store)
        .operations_in_flight(OPERATIONS)
        .operations_per_principal(OPERATIONS);
    let steady = (options.kind == "layer-steady").then_some(STEADY_PURGES);
    match options.purge_every.or(steady) {
        Some(interval) => builder.purge_every(Some(interval)).build(),
        None => builder.build(),
    }
}
