//! The store: the handle of an application.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::{SqlStr, SqlitePool};

use crate::{
    administration::write_logged,
    claim::{self, batches::write_in_turn},
    connect::connections::Access,
    engine::{Engine, group::WriteStep},
    error::NAME,
    migrate,
    options::SqliteOptions,
};
use idempotent_core::{
    Abandoned, Lease, OwnerToken, RecordId, ShortText, StoreError,
    protocol::{
        AuditEntry, Claim, ClaimOutcome, Fence, Note, RenewOutcome, Renewal, Resolution,
        ResolveOutcome, ResumablePage, Snapshot,
    },
    store::{Administration, BatchSizes, Store, Transactions},
};
use idempotent_sql::{
    fence, snapshot,
    statement::Statement,
    steps::{MARKED_PER_STATEMENT, Steps},
};

/// Within which time the runtime sends the end of an attempt again if it fails.
const END_RESENT: Duration = Duration::from_millis(1_500);

/// A store in one SQLite file, shared by the processes of one machine.
///
/// The file is in WAL mode with `synchronous = FULL`, so what the store has acknowledged survives a
/// crash of the process and of the machine. Time is the machine's clock as SQLite reads it.
///
/// Concurrent claims of new keys and completions share a transaction ([group commit]). A replay,
/// like any outcome for a duplicate that changes nothing, only reads: it takes no write lock and
/// waits for no writer. The transaction of a handler is the only writer of the file while it is
/// open, and only the store can commit it: whatever a handler writes after a `COMMIT` or `ROLLBACK`
/// of its own, or of SQLite, fails and is undone.
///
/// [Lists for operators](idempotent_core::store::Administration) use indexes. A scan with a filter
/// reads 2,000 records for each page, in the order of the ids. Up to 100,000 records are counted
/// exactly; beyond that, the number is estimated. A decision and its entry in the log are one
/// transaction. A page names a record that cannot be read; `find` fails with an error that does.
///
/// Call [`migrate`](Self::migrate) once before the first claim. [`options`](Self::options) changes
/// the defaults. The guide [SQLite in production] has the files, connections, time limits, and what
/// happens if the file is moved.
///
/// [group commit]: https://docs.rs/idempotent-actix/latest/idempotent_actix/guide/sqlite/index.html#group-commit
/// [SQLite in production]: https://docs.rs/idempotent-actix/latest/idempotent_actix/guide/sqlite/index.html
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
    pub(crate) engine: Engine,
}

impl SqliteStore {
    /// Returns the default options, to be changed before the store is opened.
    pub fn options() -> SqliteOptions {
        SqliteOptions::new()
    }

    /// Opens a file with the default options; see [`SqliteOptions::connect`].
    ///
    /// # Errors
    /// As for [`SqliteOptions::connect`].
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::options().connect(url).await
    }

    /// Shares a pool with the default options; see [`SqliteOptions::from_pool`].
    ///
    /// # Errors
    /// As for [`SqliteOptions::from_pool`].
    pub async fn from_pool(pool: SqlitePool) -> Result<Self, StoreError> {
        Self::options().from_pool(pool).await
    }

    /// Creates or upgrades the table. It is safe to call this at every start, and from several
    /// processes at the same time; a table that is up to date is only read.
    ///
    /// # Errors
    /// Fails with a permanent error if the file cannot be written, or if a later release has
    /// migrated the table to a version that this release cannot use. Fails with a transient error
    /// if the file stays locked for 5 seconds.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        migrate::migrate(&self.engine).await
    }

    /// Verifies the version of the schema, and that the file can be read and written. It changes
    /// nothing.
    ///
    /// # Errors
    /// Fails with a permanent error whose source names what is wrong with the file or the table.
    pub async fn check(&self) -> Result<(), StoreError> {
        migrate::check(&self.engine).await
    }

    fn steps(&self) -> &Steps<SqlStr> {
        &self.engine.statements.steps
    }

    /// Executes a statement that compares the owner.
    async fn write_fenced<'a>(
        &self,
        operation: &'static str,
        statement: impl Fn() -> Statement<'a>,
    ) -> Result<Fence, StoreError> {
        Ok(fence(self.engine.write(operation, statement).await? != 0))
    }
}

impl SqliteOptions {
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
    /// Fails with a permanent error if an option is invalid, if the URL is not of this form, if it
    /// names a database in memory (use `memory:` instead), if the file cannot be opened, or if
    /// SQLite is older than 3.51.3: earlier versions can corrupt a file in WAL mode.
    pub async fn connect(self, url: &str) -> Result<SqliteStore, StoreError> {
        Ok(SqliteStore { engine: self.open(url).await? })
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
    /// Fails with a permanent error if an option is invalid, or if a connection of the pool cannot
    /// be used safely: the SQLite version is below 3.51.3, `journal_mode` is not `wal`, or
    /// `synchronous` is neither `full` nor `extra`. Its source names the option or the setting. If
    /// no connection of the pool can be used later, each call fails with such an error.
    pub async fn from_pool(self, pool: SqlitePool) -> Result<SqliteStore, StoreError> {
        Ok(SqliteStore { engine: self.share(pool).await? })
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("table", &self.engine.statements.table.as_str())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn migrate(&self) -> Result<(), StoreError> {
        Self::migrate(self).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        Self::check(self).await
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        claim::claim(&self.engine, id, claim).await
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        claim::renew(&self.engine, "renew", leases).await
    }

    async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        self.write_fenced("note", || self.steps().note(lease, note)).await
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        let step = WriteStep::Complete(*lease, recording.clone());
        let written = write_in_turn(&self.engine, "complete", step);
        self.engine.as_owner("complete", END_RESENT, written).await.map(fence)
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        self.write_fenced("release", || self.steps().release(lease)).await
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        let written = self.write_fenced("abandon", || self.steps().abandon(lease, policy));
        match policy {
            Abandoned::Hold => self.engine.as_owner("abandon", END_RESENT, written).await,
            Abandoned::Retry => written.await,
        }
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.engine.read("look up", id).await.map(snapshot)
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
        audit: &AuditEntry,
    ) -> Result<ResolveOutcome, StoreError> {
        let seen = Lease { id: *id, owner: *seen };
        let steps = self.steps();
        let statement = || match resolution {
            Resolution::Complete(recording) => steps.resolve_complete(&seen, recording),
            Resolution::Release => steps.resolve_release(&seen),
        };
        if write_logged(&self.engine, "resolve", statement, audit).await? {
            return Ok(ResolveOutcome::Resolved);
        }
        self.engine.write("resolve", || steps.shorten(&seen)).await?;
        Ok(ResolveOutcome::Conflict)
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        let steps = self.steps();
        let removed = self.engine.write("purge", || steps.purge(limit)).await?;
        if removed < u64::from(limit) {
            self.engine.write("purge", || steps.shorten_expired()).await?;
            let keep = || steps.keep(MARKED_PER_STATEMENT);
            while self.engine.write("purge", keep).await? == u64::from(MARKED_PER_STATEMENT) {}
        }
        Ok(removed)
    }

    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        const OPERATION: &str = "find resumable";
        let statement = || self.steps().resumable(operation, after, limit);
        let rows = self.engine.rows(Access::Read, OPERATION, statement).await?;
        let ids = rows.iter().map(idempotent_sql::id_from_row).collect::<Result<_, _>>();
        let ids = ids.map_err(|source| StoreError::unreadable(NAME, OPERATION, source))?;
        Ok(ResumablePage::of(ids, limit))
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(&self.engine)
    }

    fn administration(&self) -> Option<&dyn Administration> {
        Some(&self.engine)
    }

    fn batches(&self) -> Option<BatchSizes> {
        Some(self.engine.group.sizes())
    }
}
