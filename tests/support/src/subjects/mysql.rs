//! A MySQL store, on a MariaDB server, whose time the tests can move.

use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Store, conformance::TestedStore};
use idempotent_mysql::{
    MySqlOptions, MySqlStore,
    internals::{batched_mysql, mysql_with_table},
};
use sqlx::{AssertSqlSafe, MySqlPool};

use super::{
    TICK,
    rows::{is_watched_rightly, shifted_in_mysql},
};
use crate::servers::{mariadb::database, process::unique_name};

/// A migrated store in a new database, and the URL of the database.
pub async fn store() -> (MySqlStore, String) {
    store_with(MySqlStore::options()).await
}

/// The same with these options.
pub async fn store_with(options: MySqlOptions) -> (MySqlStore, String) {
    let url = database().await;
    let store = options.connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    (store, url)
}

/// A store whose time a test moves by changing the times in its rows.
pub struct ShiftedMySql {
    store: MySqlStore,
    pool: MySqlPool,
    table: String,
}

impl ShiftedMySql {
    /// A store in a new database.
    pub async fn new() -> Self {
        let (store, url) = store().await;
        let pool = MySqlPool::connect(&url).await.unwrap();
        Self { store, pool, table: "idempotency_records".to_owned() }
    }

    /// The same with all claims and completions in batches, even a single one.
    pub async fn batched() -> Self {
        let subject = Self::new().await;
        Self { store: batched_mysql(subject.store), ..subject }
    }

    /// A clone of a store with a new table.
    pub fn with_new_table(store: &MySqlStore, pool: &MySqlPool) -> Self {
        let table = unique_name();
        let store = mysql_with_table(store, &table).unwrap();
        Self { store, pool: pool.clone(), table }
    }

    /// Lets each statement fail that would watch a record wrongly. Call it after the migration.
    pub async fn refuse_wrong_watches(&self) {
        let condition = is_watched_rightly("");
        let alter = format!("ALTER TABLE {} ADD CHECK ({condition})", self.table);
        sqlx::raw_sql(AssertSqlSafe(alter)).execute(&self.pool).await.unwrap();
    }

    /// Shifts all times of all records.
    async fn shift(&self, by: i64) {
        let update = format!("UPDATE {} SET {}", self.table, shifted_in_mysql(by));
        sqlx::raw_sql(AssertSqlSafe(update)).execute(&self.pool).await.unwrap();
    }
}

#[async_trait]
impl TestedStore for ShiftedMySql {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    async fn advance(&self, by: Duration) {
        self.shift(-i64::try_from(by.as_millis()).unwrap()).await;
    }

    async fn set_back(&self, by: Duration) -> bool {
        self.shift(i64::try_from(by.as_millis()).unwrap()).await;
        true
    }

    fn tick(&self) -> Duration {
        TICK
    }
}
