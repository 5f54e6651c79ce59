//! SQLite files, and a SQLite store whose time the tests can move.

use std::{
    fs::TryLockError,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use idempotent_core::{Store, conformance::TestedStore};
use idempotent_sqlite::{SqliteOptions, SqliteStore, internals::batched_sqlite};
use sqlx::{
    AssertSqlSafe, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};

use super::{
    TICK,
    rows::{is_watched_rightly, shifted_in_sqlite},
};

/// A temporary SQLite file, which is removed when this is dropped.
pub struct File(PathBuf);

impl File {
    pub fn new() -> Self {
        let name = format!("idempotent-sqlite-{:032x}", fastrand::u128(..));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    pub fn path(&self) -> PathBuf {
        self.0.join("records.db")
    }

    pub fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    pub fn options(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new().filename(self.path()).create_if_missing(true)
    }

    pub async fn open(&self) -> SqliteStore {
        self.open_with(SqliteStore::options()).await
    }

    pub async fn open_with(&self, options: SqliteOptions) -> SqliteStore {
        options.connect(&self.url()).await.unwrap()
    }

    /// Whether an owner of a lease waits for the write lock.
    pub fn has_waiting_owner(&self) -> bool {
        std::fs::File::open(self.0.join("records.db-renewals"))
            .is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// An application's pool on the same file.
    pub async fn pool(&self) -> SqlitePool {
        SqlitePool::connect_with(self.options().journal_mode(SqliteJournalMode::Wal)).await.unwrap()
    }
}

impl Default for File {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Two stores on one file, like two processes, which are used in turn. The test moves their time by
/// changing the times in the rows.
pub struct ShiftedSqlite {
    stores: [SqliteStore; 2],
    turn: AtomicUsize,
    pool: SqlitePool,
    _file: File,
}

impl ShiftedSqlite {
    pub async fn new() -> Self {
        Self::altered(|store| store).await
    }

    /// Executes all claims and completions in batches.
    pub async fn batched() -> Self {
        Self::altered(batched_sqlite).await
    }

    async fn altered(alter: fn(SqliteStore) -> SqliteStore) -> Self {
        let file = File::new();
        let stores = [alter(file.open().await), alter(file.open().await)];
        Self { stores, turn: AtomicUsize::new(0), pool: file.pool().await, _file: file }
    }
}

impl ShiftedSqlite {
    /// Lets each statement fail that would watch a record wrongly. Call it after the migration.
    pub async fn refuse_wrong_watches(&self) {
        let condition = is_watched_rightly("NEW.");
        for event in ["INSERT", "UPDATE"] {
            let trigger = format!(
                "CREATE TRIGGER watched_{event} AFTER {event} ON idempotency_records \
                 WHEN NOT ({condition}) BEGIN SELECT RAISE(ABORT, 'watched wrongly'); END"
            );
            sqlx::raw_sql(AssertSqlSafe(trigger)).execute(&self.pool).await.unwrap();
        }
    }

    /// Shifts all times of all records.
    async fn shift(&self, by: i64) {
        let shift = format!("UPDATE idempotency_records SET {}", shifted_in_sqlite(by));
        sqlx::raw_sql(AssertSqlSafe(shift)).execute(&self.pool).await.unwrap();
    }
}

#[async_trait]
impl TestedStore for ShiftedSqlite {
    fn store(&self) -> &dyn Store {
        &self.stores[self.turn.fetch_add(1, Ordering::Relaxed) % 2]
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
