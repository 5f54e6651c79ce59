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
    sql::{Names, Statements, Texts},
    store::MySqlStore,
};

/// The store with other statements; `alter` gets the name of each statement and its text.
pub fn alter_mysql(store: MySqlStore, alter: impl Fn(&str, &str) -> String) -> MySqlStore {
    let names = store.engine.statements.names.clone();
    with_statements(store, names, &Texts::new(alter))
}

/// The store with another table on the same connections.
///
/// # Errors
/// As for [`MySqlStore::connect`].
pub fn mysql_with_table(store: &MySqlStore, name: &str) -> Result<MySqlStore, StoreError> {
    let table = TableName::of_option(NAME, "table", name)?;
    let names = Names { table, ..store.engine.statements.names.clone() };
    let groups = Arc::new(Groups::new(store.groups.limits()));
    let store = MySqlStore { groups, ..store.clone() };
    Ok(with_statements(store, names, &Texts::default()))
}

fn with_statements(store: MySqlStore, names: Names, texts: &Texts) -> MySqlStore {
    let flavor = store.engine.pools.server.flavor;
    let statements = Arc::new(Statements::new(names, flavor, texts));
    let engine = Engine { statements, ..store.engine };
    MySqlStore { engine, ..store }
}

/// The store with all claims and completions in batches, even a single one.
pub fn batched_mysql(store: MySqlStore) -> MySqlStore {
    let limits = store.groups.limits().forced();
    MySqlStore { groups: Arc::new(Groups::new(limits)), ..store }
}

/// What the batches of claims, and those of completions, have done so far.
pub fn mysql_batches(store: &MySqlStore) -> [BatchCounts; 2] {
    [store.groups.claims.counts(), store.groups.completions.counts()]
}

/// Verifies the URL of a database, without opening anything.
///
/// # Errors
/// As for [`MySqlStore::connect`].
pub fn verify_mysql_url(url: &str) -> Result<(), StoreError> {
    connect::url::parse(url).map(drop)
}
