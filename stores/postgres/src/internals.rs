//! What the tests of this repository need beyond the public API. It is not covered by semantic
//! versioning.

use idempotent_core::StoreError;
use idempotent_sql::group_commit::BatchCounts;

use crate::PostgresStore;

/// The store with other statements; `alter` gets the name of each statement and its text.
pub fn alter_postgres(store: PostgresStore, alter: impl Fn(&str, &str) -> String) -> PostgresStore {
    store.altered(alter)
}

/// The store with all claims and completions in batches, even a single one.
pub fn batched_postgres(store: PostgresStore) -> PostgresStore {
    store.batched()
}

/// What the batches of claims, and those of completions, have done so far.
pub fn postgres_batches(store: &PostgresStore) -> [BatchCounts; 2] {
    store.batch_counts()
}

/// Verifies the URL of a database, without opening anything.
///
/// # Errors
/// As for [`PostgresStore::connect`].
pub fn verify_postgres_url(url: &str) -> Result<(), StoreError> {
    crate::connect::parse(url).map(drop)
}
