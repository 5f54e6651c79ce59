//! Databases with a store, to which runs write.

use std::sync::atomic::{AtomicU32, Ordering};

use idempotent_core::{Runtime, Store};
use idempotent_postgres::PostgresStore;
use idempotent_sqlite::SqliteStore;
use sqlx::{
    AssertSqlSafe, Connection, PgConnection, SqliteConnection, sqlite::SqliteConnectOptions,
};
use test_support::servers::postgres;

use crate::support::no_purge;

const EFFECTS: &str = "CREATE TABLE effects (note integer NOT NULL)";
const COUNT: &str = "SELECT count(*) FROM effects";
const WRITE: &str = "INSERT INTO effects VALUES (1)";

/// A database with a store.
pub(super) struct Database<C> {
    pub(super) runtime: Runtime,
    pub(super) connection: C,
    /// The file, if it is one.
    _directory: Option<tempfile::TempDir>,
}

/// A connection to a database of its kind.
pub(super) trait Effects: Connection + Send + Sync + Sized + 'static {
    async fn database() -> Database<Self>;
    fn write(&mut self) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
    async fn count(&mut self) -> i64;
}

async fn runtime_with(store: impl Store) -> Runtime {
    store.migrate().await.unwrap();
    Runtime::new(store, no_purge())
}

impl Effects for SqliteConnection {
    async fn database() -> Database<Self> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("records.db");
        let store = SqliteStore::connect(&format!("sqlite:{}", file.display())).await.unwrap();
        let runtime = runtime_with(store).await;
        let options = SqliteConnectOptions::new().filename(file);
        let mut connection = Self::connect_with(&options).await.unwrap();
        sqlx::raw_sql(EFFECTS).execute(&mut connection).await.unwrap();
        Database { runtime, connection, _directory: Some(directory) }
    }

    async fn write(&mut self) -> Result<(), sqlx::Error> {
        sqlx::query(WRITE).execute(self).await.map(drop)
    }

    async fn count(&mut self) -> i64 {
        sqlx::query_scalar(COUNT).fetch_one(self).await.unwrap()
    }
}

impl Effects for PgConnection {
    async fn database() -> Database<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let schema = format!("runs_{}_{number}", std::process::id());
        let mut connection = Self::connect(postgres::shared()).await.unwrap();
        let create = format!("CREATE SCHEMA {schema}; SET search_path TO {schema}; {EFFECTS}");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut connection).await.unwrap();
        let mut url = postgres::shared().to_owned();
        url += if url.contains('?') { "&" } else { "?" };
        url += &format!("options=-c%20search_path%3D{schema}");
        let runtime = runtime_with(PostgresStore::connect(&url).await.unwrap()).await;
        Database { runtime, connection, _directory: None }
    }

    async fn write(&mut self) -> Result<(), sqlx::Error> {
        sqlx::query(WRITE).execute(self).await.map(drop)
    }

    async fn count(&mut self) -> i64 {
        sqlx::query_scalar(COUNT).fetch_one(self).await.unwrap()
    }
}
