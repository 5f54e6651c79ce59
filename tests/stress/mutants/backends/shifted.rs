//! A store whose time a test moves by changing the times in its rows.

use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{conformance::TestedStore, store::Store};
use sqlx::{AssertSqlSafe, PgPool, SqlitePool};

use test_support::subjects::{
    rows::{shifted_in_postgres, shifted_in_sqlite},
    sqlite::File,
};

pub(super) struct ShiftedStore {
    pub(super) store: Box<dyn Store>,
    pub(super) rows: Rows,
}

pub(super) enum Rows {
    Sqlite {
        pool: SqlitePool,
        _file: File,
    },
    Postgres {
        pool: PgPool,
        table: String,
    },
    #[cfg(feature = "mysql")]
    MySql {
        pool: sqlx::MySqlPool,
        table: String,
    },
}

#[async_trait]
impl TestedStore for ShiftedStore {
    fn store(&self) -> &dyn Store {
        &*self.store
    }

    async fn advance(&self, by: Duration) {
        self.shift(-i64::try_from(by.as_millis()).unwrap()).await;
    }

    async fn set_back(&self, by: Duration) -> bool {
        self.shift(i64::try_from(by.as_millis()).unwrap()).await;
        true
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(3600)
    }
}

impl ShiftedStore {
    /// Shifts all times of all records.
    async fn shift(&self, by: i64) {
        match &self.rows {
            Rows::Sqlite { pool, .. } => {
                let set = shifted_in_sqlite(by);
                let shift = AssertSqlSafe(format!("UPDATE idempotency_records SET {set}"));
                sqlx::raw_sql(shift).execute(pool).await.map(drop).unwrap();
            }
            Rows::Postgres { pool, table } => {
                let set = shifted_in_postgres(by);
                let shift = AssertSqlSafe(format!("UPDATE {table} SET {set}"));
                sqlx::raw_sql(shift).execute(pool).await.map(drop).unwrap();
            }
            #[cfg(feature = "mysql")]
            Rows::MySql { pool, table } => {
                let set = test_support::subjects::rows::shifted_in_mysql(by);
                let shift = AssertSqlSafe(format!("UPDATE {table} SET {set}"));
                sqlx::raw_sql(shift).execute(pool).await.map(drop).unwrap();
            }
        }
    }
}
