//! What the tests of this repository need beyond the public API. It is not covered by semantic
//! versioning.

use std::sync::Arc;

use idempotent_core::StoreError;
use idempotent_sql::group_commit::BatchCounts;

use crate::{
    SqliteStore, connect,
    engine::{Engine, group::Group},
    sql::Statements,
};

/// The store with other statements; `alter` gets the name of each statement and its text.
pub fn alter_sqlite(store: SqliteStore, alter: impl Fn(&str, &str) -> String) -> SqliteStore {
    let statements = Arc::new(Statements::of(store.engine.statements.table.clone(), alter));
    SqliteStore { engine: Engine { statements, ..store.engine } }
}

/// The store with all claims and completions in batches, even a single one.
pub fn batched_sqlite(store: SqliteStore) -> SqliteStore {
    let group = Group::new(store.engine.group.limits().forced());
    SqliteStore { engine: Engine { group, ..store.engine } }
}

/// What the batches of a store have done so far.
pub fn sqlite_batches(store: &SqliteStore) -> BatchCounts {
    store.engine.group.counts()
}

/// Verifies the URL of a database, without opening anything.
///
/// # Errors
/// As for [`SqliteStore::connect`].
pub fn verify_sqlite_url(url: &str) -> Result<(), StoreError> {
    connect::parse(url).map(drop)
}
