//! What the tests of this repository need beyond the public API. It is not covered by semantic
//! versioning.

use std::sync::Arc;

use idempotent_core::StoreError;
use idempotent_sql::{
    TableName,
    group_commit::{BatchCounts, steps::Groups},
};

use crate::{
    connect,
    engine::Engine,
    error::NAME,
    sql::{names::Names, statements::Texts, table::Table},
    store::PostgresStore,
};

/// The store with other statements; `alter` gets the name of each statement and its text.
pub fn alter_postgres(store: PostgresStore, alter: impl Fn(&str, &str) -> String) -> PostgresStore {
    let texts = Texts::new(alter);
    let table = Table::new(store.engine.names().clone(), texts);
    let engine = Engine { table: Arc::new(table), ..store.engine };
    PostgresStore { engine, ..store }
}

/// The store with another table on the same connections.
///
/// # Errors
/// As for [`PostgresStore::connect`].
pub fn postgres_with_table(store: &PostgresStore, name: &str) -> Result<PostgresStore, StoreError> {
    let table = TableName::of_option(NAME, "table", name)?;
    let names = Names { table, ..store.engine.names().clone() };
    let table = Arc::new(Table::new(names, Texts::default()));
    let engine = Engine { table, ..store.engine.clone() };
    let groups = Arc::new(Groups::new(store.groups.limits()));
    Ok(PostgresStore { engine, groups, ..store.clone() })
}

/// The store with all claims and completions in batches, even a single one.
pub fn batched_postgres(store: PostgresStore) -> PostgresStore {
    let limits = store.groups.limits().forced();
    PostgresStore { groups: Arc::new(Groups::new(limits)), ..store }
}

/// What the batches of claims, and those of completions, have done so far.
pub fn postgres_batches(store: &PostgresStore) -> [BatchCounts; 2] {
    [store.groups.claims.counts(), store.groups.completions.counts()]
}

/// Verifies the URL of a database, without opening anything.
///
/// # Errors
/// As for [`PostgresStore::connect`].
pub fn verify_postgres_url(url: &str) -> Result<(), StoreError> {
    connect::url::parse(url).map(drop)
}
