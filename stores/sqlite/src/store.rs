//! The store: the handle of an application.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::{SqliteConnection, SqlitePool};

use crate::{
    claim::batches::{ALONE, Group, WriteStep},
    connect::{self, database_file::DatabaseFile},
    engine::waiting_owners::WaitingOwners,
    engine::write_lock::WriteLockObserver,
    sql::Statements,
};
use idempotent_core::{
    Abandoned, Lease, OwnerToken, Record, RecordId, RecordState, ShortText, StoreError,
    protocol::{
        Claim, ClaimOutcome, Fence, Note, RenewOutcome, Renewal, Resolution, ResolveOutcome,
        ResumablePage, Snapshot,
    },
    store::{Store, Transactions},
    transition::{self, Change},
};
use idempotent_sql::{
    ClaimContention, ConnectionPool, InvalidTableName, MARKED_PER_STATEMENT, TableName, fence,
    group_commit::GroupCommitLimits,
};

pub(crate) const NAME: &str = "sqlite";
/// How long SQLite waits for a lock that another connection holds before the call fails as busy.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_millis(50);
/// How long a busy call is repeated. If its caller drops a call, it continues for at most
/// [`BUSY_TIMEOUT`].
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Within which time the runtime sends the end of an attempt again if it fails.
pub(crate) const END_RESENT: Duration = Duration::from_millis(1_500);
/// How often a claim starts again because a concurrent claim changed the record first.
pub(crate) const MAX_ROUNDS: usize = 3;

/// A store in one SQLite file, shared by the processes of one machine.
///
/// The file is in WAL mode with `synchronous = FULL`, so what the store has acknowledged survives a
/// crash of the process and of the machine. Time is the machine's clock as SQLite reads it. A
/// replay, like any outcome for a duplicate that changes nothing, only reads: it takes no write
/// lock and waits for no writer.
///
/// Call [`migrate`](Self::migrate) once before the first claim.
///
/// # Group commit
/// Concurrent claims of new keys and completions are executed in one transaction, with one commit.
/// A step is executed alone while no other one is under way. Otherwise it joins the next batch,
/// which takes up to [64 steps](Self::max_batch_steps) or [1 MiB](Self::max_batch_bytes) as soon as
/// the batch before it has ended. There is no timer. If a batch fails, or if its statements take
/// longer than a second, each of its steps is executed alone; if the file stays locked, its steps
/// fail. All writers wait for a step alone, so it fails if its statement takes longer than two
/// seconds, for instance because of a trigger. On a connection of the application, these statements
/// have no limit. A step whose caller drops it in the queue is not executed. Batches are executed
/// by a thread named `idempotency-sqlite`, which all SQLite stores of the process share.
/// [`group_commit(false)`](Self::group_commit) switches them off.
///
/// # Transactions
/// While the transaction of a handler is open, it is the only writer of the file, and it uses the
/// only write connection of the store.
///
/// On a connection that a handler uses, only the store can commit, and only the whole transaction:
///
/// * SQLite rolls a transaction back after some errors (`ON CONFLICT ROLLBACK`,
///   `RAISE(ROLLBACK, …)`, a full disk, an interrupted statement). Whatever the handler writes
///   after such an error fails and is undone, and the request gets 500.
/// * A `COMMIT` or `ROLLBACK` by the handler has the same effect: both roll the transaction back.
/// * If a handler is dropped in the middle of a statement, the statement is interrupted.
///
/// For this purpose the store sets the connection's commit hook, rollback hook and progress
/// handler, and replaces those of the application; on a [shared](Self::from_pool) connection it
/// does so only while a handler uses the connection. The connection is closed instead of reused if
/// a handler has changed a setting that the store depends on, created a temporary object, attached
/// a database, or replaced the hooks.
///
/// Writes to an attached database are not atomic with the record if the machine loses power during
/// the commit, because in WAL mode SQLite commits each file separately.
///
/// # Files
/// In addition to the database and SQLite's `-wal` and `-shm` files, the store keeps an empty file
/// with the suffix `-renewals`. A renewal or a completion that waits for another connection's
/// transaction locks this file, so that no claim takes over its key meanwhile. The file may be
/// removed while no process has the database open. The directory must be writable.
///
/// If the database is moved, replaced or deleted while the store has it open, SQLite goes on
/// writing to the file that it has opened, which no other process will read. On Unix, the store
/// notices this before its next write, and within half a second before it reads: until the file is
/// back in its place, or the process is restarted, every call fails with a transient error that
/// says so.
///
/// # Examples
/// ```
/// # async fn open() -> Result<(), idempotent_core::StoreError> {
/// use idempotent_sqlite::SqliteStore;
///
/// let store = SqliteStore::connect("sqlite:payments.db").await?;
/// store.migrate().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteStore {
    pub(crate) writer: ConnectionPool<SqliteConnection>,
    pub(crate) readers: ConnectionPool<SqliteConnection>,
    pub(crate) statements: Arc<Statements>,
    pub(crate) group: Arc<Group>,
    pub(crate) waiting: WaitingOwners,
    pub(crate) file: Arc<DatabaseFile>,
    /// Tracks who holds the write lock. Only useful if the write connection is the store's own.
    pub(crate) lock: Arc<WriteLockObserver>,
}

impl SqliteStore {
    /// Opens a file by its URL, `sqlite:FILE` or `sqlite://FILE`. Creates the file if it does not
    /// exist, unless the URL contains `?mode=rw`.
    ///
    /// The store opens its own connections: one that writes, so that the writers of this process
    /// queue for it instead of polling SQLite's lock, and up to four that read. A call waits at
    /// most 5 seconds for a connection and 5 seconds for the lock. A claim with
    /// `claim = "transaction"` whose `wait` is longer than 4 seconds waits for a second more than
    /// its `wait`. SQLite has one writer, so handlers with a transaction take turns.
    ///
    /// # Errors
    /// Fails with a permanent error if the URL is not of this form, if it names a database in
    /// memory (use `memory:` instead), if the file cannot be opened, or if SQLite is older than
    /// 3.51.3: earlier versions can corrupt a file in WAL mode.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let options = connect::parse(url)?;
        let file = options.get_filename().to_owned();
        let (writer, readers) = connect::connect(options).await?;
        Self::new(writer, readers, &file).await
    }

    /// Creates a store that shares a pool with the application. The pool's `busy_timeout` applies
    /// to single statements, and its `acquire_timeout` to waiting for a connection; a transaction
    /// waits at most 5 seconds for the write lock.
    ///
    /// The application must build the pool with the same sqlx version (0.9) as this crate.
    ///
    /// Each connection is verified before it is used, because the application may have left
    /// anything on it. One that has an open transaction, or a setting under which records could be
    /// lost, is closed with a warning, and the next one is used.
    ///
    /// # Errors
    /// Fails if a connection of the pool cannot be used safely: the SQLite version is below 3.51.3,
    /// `journal_mode` is not `wal`, or `synchronous` is neither `full` nor `extra`. The error is
    /// permanent, and its source names the setting. If no connection of the pool can be used later,
    /// each call fails with such an error.
    pub async fn from_pool(pool: SqlitePool) -> Result<Self, StoreError> {
        let file = pool.connect_options().get_filename().to_owned();
        let shared = ConnectionPool::shared(pool, None);
        Self::new(shared.clone(), shared, &file).await
    }

    /// Creates or upgrades the table. It is safe to call this at every start, and from several
    /// processes at the same time; a table that is up to date is only read.
    ///
    /// # Errors
    /// Fails with a permanent error if the file cannot be written, or if a later release has
    /// migrated the table to a version that this release cannot use. Fails with a transient error
    /// if the file stays locked for 5 seconds.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        Store::migrate(self).await
    }

    /// Verifies the version of the schema, and that the file can be read and written. It changes
    /// nothing.
    ///
    /// # Errors
    /// Fails with a permanent error whose source names what is wrong with the file or the table.
    pub async fn check(&self) -> Result<(), StoreError> {
        Store::check(self).await
    }

    async fn new(
        writer: ConnectionPool<SqliteConnection>,
        readers: ConnectionPool<SqliteConnection>,
        configured: &Path,
    ) -> Result<Self, StoreError> {
        let file = connect::check(&writer).await?;
        Ok(Self {
            waiting: WaitingOwners::of(&file),
            file: Arc::new(DatabaseFile::opened(configured, &file)),
            writer,
            readers,
            statements: Arc::new(Statements::new(TableName::default())),
            group: Group::new(GroupCommitLimits::new(ALONE)),
            lock: Arc::default(),
        })
    }

    /// Sets the name of the table; the default is `idempotency_records`.
    ///
    /// # Errors
    /// Fails if the name is not 1 to 48 ASCII letters, digits and underscores, or starts with a
    /// digit.
    pub fn table(self, name: &str) -> Result<Self, InvalidTableName> {
        let statements = Arc::new(Statements::new(TableName::new(name)?));
        // The batches of another table are separate.
        Ok(Self { statements, group: Group::new(self.group.limits()), ..self })
    }

    /// Writes the record that the state machine has decided on; returns `false` if the record has
    /// changed since it was read.
    async fn write_claim(
        &self,
        id: &RecordId,
        claim: &Claim,
        seen: Option<&Record>,
        new: &Record,
    ) -> Result<bool, StoreError> {
        match seen {
            None => self.write_in_turn("claim", WriteStep::Claim(*id, claim.clone())).await,
            Some(seen) if new.state == RecordState::Held => self.hold(id, claim, &seen.owner).await,
            Some(seen) if new.owner != claim.owner => {
                self.shorten("claim", &Lease { id: *id, owner: seen.owner }).await
            }
            Some(seen) if seen.owner == claim.owner => {
                let lease = Lease { id: *id, owner: claim.owner };
                let renewed =
                    self.renew_leases("claim", &[Renewal::new(lease, claim.lease)]).await?;
                Ok(renewed.contains(&RenewOutcome::Renewed))
            }
            Some(seen) => self.take_over(id, claim, seen.attempt).await,
        }
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("table", &self.statements.table.as_str())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn migrate(&self) -> Result<(), StoreError> {
        self.apply_migrations().await?;
        self.verify_table("migrate").await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.check_version().await?;
        self.verify_table("check").await?;
        self.check_file().await
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        for _ in 0..MAX_ROUNDS {
            let (record, now) = self.existing(id).await?;
            let now = self.waiting.effective_time(record.as_ref(), now).await;
            let (change, outcome) = transition::claim(record.as_ref(), claim, now);
            let Change::Put(new) = change else {
                return Ok(outcome);
            };
            let seen = record.as_ref().filter(|record| !record.is_expired(now));
            // Between the read and the write another process may take the key; the statement, which
            // repeats every guard and names the attempt that was read, then changes nothing (case
            // `one_of_many_concurrent_takeovers_wins`).
            if self.write_claim(id, claim, seen, &new).await? {
                return Ok(outcome);
            }
        }
        Err(StoreError::transient(NAME, "claim", ClaimContention))
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        self.renew_leases("renew", leases).await
    }

    async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        self.write("note", || self.statements.note(lease, note)).await.map(|rows| fence(rows != 0))
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        let step = WriteStep::Complete(*lease, recording.clone());
        let written = self.write_in_turn("complete", step);
        self.as_owner("complete", END_RESENT, written).await.map(fence)
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        self.write("release", || self.statements.release(lease)).await.map(|rows| fence(rows != 0))
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        let written = self.write("abandon", || self.statements.abandon(lease, policy));
        let rows = match policy {
            Abandoned::Hold => self.as_owner("abandon", END_RESENT, written).await,
            Abandoned::Retry => written.await,
        };
        rows.map(|rows| fence(rows != 0))
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        let (record, at) = self.read("look up", id).await?;
        Ok(record.filter(|record| !record.is_expired(at)).map(|record| Snapshot::new(record, at)))
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
    ) -> Result<ResolveOutcome, StoreError> {
        let seen = Lease { id: *id, owner: *seen };
        let statement = || match resolution {
            Resolution::Complete(recording) => self.statements.resolve_complete(&seen, recording),
            Resolution::Release => self.statements.resolve_release(&seen),
        };
        if self.write("resolve", statement).await? != 0 {
            return Ok(ResolveOutcome::Resolved);
        }
        self.shorten("resolve", &seen).await?;
        Ok(ResolveOutcome::Conflict)
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        let removed = self.write("purge", || self.statements.purge(limit)).await?;
        if removed < u64::from(limit) {
            self.write("purge", || self.statements.shorten_expired()).await?;
            let keep = || self.statements.keep(MARKED_PER_STATEMENT);
            while self.write("purge", keep).await? == u64::from(MARKED_PER_STATEMENT) {}
        }
        Ok(removed)
    }

    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        self.resumable_page(operation, after, limit).await
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }
}
