//! What the tests of this repository need beyond the public API. It is not covered by semantic
//! versioning.

use idempotent_core::StoreError;
use idempotent_sql::group_commit::BatchCounts;

use crate::SqliteStore;

/// The store with other statements; `alter` gets the name of each statement and its text.
pub fn alter_sqlite(store: SqliteStore, alter: impl Fn(&str, &str) -> String) -> SqliteStore {
    store.altered(alter)
}

/// The store with all claims and completions in batches, even a single one.
pub fn batched_sqlite(store: SqliteStore) -> SqliteStore {
    store.batched()
}

/// What the batches of a store have done so far.
pub fn sqlite_batches(store: &SqliteStore) -> BatchCounts {
    store.batch_counts()
}

/// Verifies the URL of a database, without opening anything.
///
/// # Errors
/// As for [`SqliteStore::connect`].
pub fn verify_sqlite_url(url: &str) -> Result<(), StoreError> {
    crate::connect::parse(url).map(drop)
}
