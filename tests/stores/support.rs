//! Stores whose time the tests move.

use std::{
    fs::TryLockError,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use idempotent_core::{
    OwnerToken, Store,
    clock::{ManualClock, Timestamp},
    conformance::TestedStore,
    store::memory::MemoryStore,
};
use idempotent_sqlite::{SqliteOptions, SqliteStore, internals::batched_sqlite};
use sqlx::{
    SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};

/// Long, so that each history runs in less than a quarter of a tick, even on a busy machine.
const TICK: Duration = Duration::from_secs(3600);

pub(crate) struct Memory {
    store: MemoryStore,
    clock: ManualClock,
}

impl Memory {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::at(Timestamp::from_millis(1_000_000_000_000));
        Self { store: MemoryStore::with_clock(clock.clone()), clock }
    }
}

#[async_trait::async_trait]
impl TestedStore for Memory {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn set_back(&self, by: Duration) -> bool {
        self.clock.set_back(by);
        true
    }

    fn tick(&self) -> Duration {
        TICK
    }
}

/// A temporary SQLite file, which is removed when this is dropped.
pub(crate) struct File(PathBuf);

impl File {
    pub(crate) fn new() -> Self {
        let name: String = OwnerToken::random()
            .unwrap()
            .as_bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let folder = std::env::temp_dir().join(format!("idempotent-core-{name}"));
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.join("records.db")
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    pub(crate) fn options(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new().filename(self.path()).create_if_missing(true)
    }

    pub(crate) async fn open(&self) -> SqliteStore {
        self.open_with(SqliteStore::options()).await
    }

    pub(crate) async fn open_with(&self, options: SqliteOptions) -> SqliteStore {
        options.connect(&self.url()).await.unwrap()
    }

    /// Whether an owner of a lease waits for the write lock.
    pub(crate) fn has_waiting_owner(&self) -> bool {
        std::fs::File::open(self.0.join("records.db-renewals"))
            .is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// An application's pool on the same file.
    pub(crate) async fn pool(&self) -> SqlitePool {
        SqlitePool::connect_with(self.options().journal_mode(SqliteJournalMode::Wal)).await.unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Two stores on one file, like two processes, which are used in turn. The test moves their time by
/// changing the times in the rows.
pub(crate) struct Sqlite {
    stores: [SqliteStore; 2],
    turn: AtomicUsize,
    pool: SqlitePool,
    _file: File,
}

impl Sqlite {
    pub(crate) async fn new() -> Self {
        Self::altered(|store| store).await
    }

    /// Executes all claims and completions in batches.
    pub(crate) async fn batched() -> Self {
        Self::altered(batched_sqlite).await
    }

    async fn altered(alter: fn(SqliteStore) -> SqliteStore) -> Self {
        let file = File::new();
        let stores = [alter(file.open().await), alter(file.open().await)];
        Self { stores, turn: AtomicUsize::new(0), pool: file.pool().await, _file: file }
    }
}

impl Sqlite {
    /// Shifts all times of all records. The lease of an abandoned record ended in 1970 (0), and is
    /// not shifted.
    async fn shift(&self, by: i64) {
        let shift = "UPDATE idempotency_records
            SET lease_until = CASE lease_until WHEN 0 THEN 0 ELSE lease_until + ?1 END,
                first_seen = first_seen + ?1, expires_at = expires_at + ?1, \
                completed_at = completed_at + ?1";
        sqlx::query(shift).bind(by).execute(&self.pool).await.unwrap();
    }
}

#[async_trait::async_trait]
impl TestedStore for Sqlite {
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
