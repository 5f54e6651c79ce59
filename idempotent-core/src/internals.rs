//! What the tests of this repository need beyond the public API. It is not covered by semantic
//! versioning.

#[cfg(feature = "memory")]
pub use crate::sync::{Mutex, MutexGuard};
pub use crate::{
    runtime::internals::{Gauges, gauges, open_transaction, runtime_of_process, simulated_runtime},
    sync::interleave,
};

/// The store with other statements; `alter` gets the name of each statement and its text.
#[cfg(feature = "sqlite")]
pub fn alter_sqlite(
    store: crate::store::sqlite::SqliteStore,
    alter: impl Fn(&str, &str) -> String,
) -> crate::store::sqlite::SqliteStore {
    store.altered(alter)
}

/// The store with other statements; `alter` gets the name of each statement and its text.
#[cfg(feature = "postgres")]
pub fn alter_postgres(
    store: crate::store::postgres::PostgresStore,
    alter: impl Fn(&str, &str) -> String,
) -> crate::store::postgres::PostgresStore {
    store.altered(alter)
}

/// The store with another text in place of a file of its scripts.
#[cfg(feature = "redis")]
pub fn alter_redis(
    store: crate::store::redis::RedisStore,
    file: &str,
    text: &str,
) -> crate::store::redis::RedisStore {
    store.altered(file, text)
}
