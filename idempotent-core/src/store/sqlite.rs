//! The store in a SQLite file.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::{SqliteConnection, SqlitePool};

use self::{lock::WriteLock, statements::Statements, waiting::WaitingRenewals};
pub use super::sql::InvalidTableName;
use super::sql::{Connections, Contended, TableName, fence};
use crate::{
    error::StoreError,
    lease::{Lease, OwnerToken},
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence, RenewOutcome, Renewal, Resolution, ResolveOutcome, Snapshot},
    record::{Record, RecordState},
    record_id::RecordId,
    store::{Store, Transactions},
    transition::{self, Change},
};

mod error;
mod guard;
mod guarded;
mod lock;
mod migrate;
mod open;
mod statements;
mod steps;
mod transaction;
mod waiting;

const NAME: &str = "sqlite";
/// How long SQLite waits for a lock that another connection has, before it gives a call up.
const BUSY_TIMEOUT: Duration = Duration::from_millis(50);
/// How long a call is made again while other connections have the lock. A call that is dropped by
/// its caller goes on for [`BUSY_TIMEOUT`] only.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a claim reads again when another one was faster.
const ROUNDS: usize = 3;

/// A store in one SQLite file, shared by the processes of one machine.
///
/// It works in WAL mode with `synchronous = FULL`, so what it acknowledged survives the death of
/// the process and of the machine. Time is the clock of the machine as SQLite reads it. Replays,
/// and duplicates of work in flight, only read: they take no write lock and wait for no writer.
///
/// Call [`migrate`](Self::migrate) once before the first claim.
///
/// # Transactions
/// A handler's transaction is the file's only writer while it is open, and has the one connection
/// that writes.
///
/// Nothing is committed on a connection that a handler has but the transaction itself, by the
/// store. SQLite rolls a transaction back after some errors (`ON CONFLICT ROLLBACK`,
/// `RAISE(ROLLBACK, …)`, a full disk, an interrupted statement); what the handler writes after that
/// fails and is undone, and the request gets 500. So does a `COMMIT` or `ROLLBACK` of the
/// handler's: both roll back. A progress handler stops the statement in the middle of which a
/// handler was dropped. For this the store sets the connection's commit and rollback hooks and its
/// progress handler, in place of the application's; on a [shared](Self::from_pool) connection for
/// as long as the handler has it. A connection on which a handler has changed a setting that the store depends on,
/// created a temporary object, attached a database, or replaced the hooks is closed and not used
/// again. What a handler writes to an attached database is not covered if the machine loses power
/// in the middle of the commit: in WAL mode SQLite commits each file separately.
///
/// # Files
/// Beside the database and SQLite's own `-wal` and `-shm` the store keeps an empty file with the
/// suffix `-renewals`. Renewals that wait for another connection's transaction lock it, so that
/// claims do not take their keys over. It may be removed while no process has the database open.
///
/// # Examples
/// ```
/// # async fn open() -> Result<(), idempotent_core::StoreError> {
/// use idempotent_core::store::sqlite::SqliteStore;
///
/// let store = SqliteStore::connect("sqlite:payments.db").await?;
/// store.migrate().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteStore {
    writer: Connections<SqliteConnection>,
    readers: Connections<SqliteConnection>,
    statements: Arc<Statements>,
    namespace: Option<Arc<str>>,
    waiting: WaitingRenewals,
    /// Of the connection that writes, where it is the store's own.
    lock: Arc<WriteLock>,
}

impl SqliteStore {
    /// Opens a file by its URL, `sqlite:FILE` or `sqlite://FILE`, and creates it if it is not there
    /// (unless the URL says `?mode=rw`). The store has connections of its own: one that writes, so
    /// that the writers of this process queue up instead of sleeping on SQLite's lock, and a few
    /// that read. A call waits at most 5 seconds for a connection, and 5 for the lock; a claim
    /// within a transaction waits a second longer than its patience if that is more. Handlers with
    /// a transaction take turns, since SQLite has one writer; there is no number of them to set.
    ///
    /// # Errors
    /// When the file cannot be opened; when SQLite is older than 3.51.3, whose predecessors can
    /// corrupt a file in WAL mode; and for `sqlite::memory:`, which `memory:` does better.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let (url, namespace) = super::namespace::split(NAME, url)?;
        let (writer, readers) = open::connect(&url).await?;
        Ok(Self { namespace, ..Self::new(writer, readers).await? })
    }

    /// Shares a pool with the application. The pool's busy timeout applies to single statements,
    /// and its time-out for a connection; a transaction waits for the write lock for 5 seconds at
    /// most.
    ///
    /// # Errors
    /// When one of the pool's connections says that the version is below 3.51.3, that
    /// `journal_mode` is not `wal`, or that `synchronous` is neither `full` nor `extra`. The
    /// error's source names the setting.
    pub async fn from_pool(pool: SqlitePool) -> Result<Self, StoreError> {
        let shared = Connections::shared(pool, None);
        Self::new(shared.clone(), shared).await
    }

    /// Creates or upgrades the table. Safe to call at every start and from several processes at
    /// once.
    ///
    /// # Errors
    /// When the file cannot be written, or a later release has migrated the table to a version that
    /// this one may not use.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        self.apply_migrations().await
    }

    async fn new(
        writer: Connections<SqliteConnection>,
        readers: Connections<SqliteConnection>,
    ) -> Result<Self, StoreError> {
        let waiting = WaitingRenewals::of(&open::check(&writer).await?);
        Ok(Self {
            writer,
            readers,
            statements: Arc::new(Statements::new(TableName::default())),
            waiting,
            lock: Arc::default(),
            namespace: None,
        })
    }

    /// Keeps the records in this table, in place of `idempotency_records`.
    ///
    /// # Errors
    /// When the name is not 1 to 48 ASCII letters, digits and underscores, or starts with a digit.
    pub fn table(self, name: &str) -> Result<Self, InvalidTableName> {
        Ok(Self { statements: Arc::new(Statements::new(TableName::new(name)?)), ..self })
    }

    /// Writes what the state machine made of the record that was read; `false` if the record is no
    /// longer that one.
    async fn write_claim(
        &self,
        id: &RecordId,
        claim: &Claim,
        seen: Option<&Record>,
        new: &Record,
    ) -> Result<bool, StoreError> {
        match seen {
            None => self.claim_absent(id, claim).await,
            Some(seen) if new.state == RecordState::Held => self.hold(id, claim, &seen.owner).await,
            Some(seen) if new.owner != claim.owner => {
                self.shorten("claim", &Lease { id: *id, owner: seen.owner }).await
            }
            Some(seen) if seen.owner == claim.owner => {
                let lease = Lease { id: *id, owner: claim.owner };
                let renewed = self.renew_leases("claim", &[Renewal { lease, extend: claim.lease }]).await?;
                Ok(renewed.contains(&RenewOutcome::Renewed))
            }
            Some(seen) => self.take_over(id, claim, seen.attempt).await,
        }
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("table", &self.statements.table.as_str()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn migrate(&self) -> Result<(), StoreError> {
        self.apply_migrations().await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.check_version().await?;
        self.check_file().await
    }

    fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        for _ in 0..ROUNDS {
            let (record, now) = self.read("claim", id).await?;
            let now = self.waiting.time_of(record.as_ref(), now).await;
            let (change, outcome) = transition::claim(record.as_ref(), claim, now);
            let Change::Put(new) = change else {
                return Ok(outcome);
            };
            let seen = record.as_ref().filter(|record| !record.expired(now));
            // Between the read and the write another process may take the key; the statement
            // repeats every guard and names the attempt that was seen, so it then changes nothing
            // (case `one_of_many_concurrent_takeovers_wins`).
            if self.write_claim(id, claim, seen, &new).await? {
                return Ok(outcome);
            }
        }
        Err(StoreError::transient(NAME, "claim", Contended))
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        self.renew_leases("renew", leases).await
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        let statement = || self.statements.complete(lease).bind(recording.as_ref());
        self.write("complete", statement).await.map(|rows| fence(rows != 0))
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        self.write("release", || self.statements.release(lease)).await.map(|rows| fence(rows != 0))
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        self.write("abandon", || self.statements.abandon(lease, policy)).await.map(|rows| fence(rows != 0))
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        let (record, at) = self.read("look up", id).await?;
        Ok(record.filter(|record| !record.expired(at)).map(|record| Snapshot { record, at }))
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
    ) -> Result<ResolveOutcome, StoreError> {
        let seen = Lease { id: *id, owner: *seen };
        let statement = || match resolution {
            Resolution::Complete(recording) => self.statements.resolve_complete(&seen).bind(recording.as_ref()),
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
        }
        Ok(removed)
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }
}
