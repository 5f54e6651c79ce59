//! A Postgres store whose time the tests can move.

use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Store, conformance::TestedStore};
use idempotent_postgres::{PostgresOptions, PostgresStore, internals::postgres_with_table};
use sqlx::{AssertSqlSafe, PgPool};

use super::{
    TICK,
    rows::{is_watched_rightly, shifted_in_postgres},
};
use crate::servers::postgres::{database, unique_name};

/// A migrated store in a new database, and the URL of the database.
pub async fn store() -> (PostgresStore, String) {
    store_with(PostgresStore::options()).await
}

/// The same with these options.
pub async fn store_with(options: PostgresOptions) -> (PostgresStore, String) {
    let url = database().await;
    let store = options.connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    (store, url)
}

/// A store whose time a test moves by changing the times in its rows.
pub struct ShiftedPostgres {
    store: PostgresStore,
    /// Connects to the server without a pooler.
    pool: PgPool,
    table: String,
}

impl ShiftedPostgres {
    /// A store in a new database.
    pub async fn new() -> Self {
        let (store, url) = store().await;
        let pool = PgPool::connect(&url).await.unwrap();
        Self { store, pool, table: "idempotency_records".to_owned() }
    }

    /// A clone of a store with a new table, in this schema if it is not the default one.
    pub fn with_new_table(store: &PostgresStore, pool: &PgPool, schema: Option<&str>) -> Self {
        let name = unique_name();
        let store = postgres_with_table(store, &name).unwrap();
        let table = schema.map_or(name.clone(), |schema| format!("{schema}.{name}"));
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
        let update = format!("UPDATE {} SET {}", self.table, shifted_in_postgres(by));
        sqlx::raw_sql(AssertSqlSafe(update)).execute(&self.pool).await.unwrap();
    }
}

#[async_trait]
impl TestedStore for ShiftedPostgres {
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
