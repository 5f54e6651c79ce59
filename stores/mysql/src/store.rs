//! The store in a MySQL or MariaDB database.

use std::{any::TypeId, fmt, num::NonZeroU16, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::{MySql, MySqlPool};

use crate::{
    claim::{self, records},
    connect::{self, Pools},
    engine::{Engine, Resend},
    migrate,
    options::MySqlOptions,
    server::io_thread::on_io_thread,
    sql::{Names, Statements, Texts},
    transaction,
};
use idempotent_core::{
    Abandoned, Lease, OwnerToken, RecordId, ShortText, StoreError,
    protocol::{
        AuditEntry, Claim, ClaimOutcome, Fence, Note, RenewOutcome, Renewal, Resolution,
        ResolveOutcome, ResumablePage, Snapshot,
    },
    store::{Administration, BatchSizes, Store, Transaction, TransactionClaim, Transactions},
};
use idempotent_sql::{
    TableName, fence, group_commit::steps::Groups, server::health::MAX_WAIT, snapshot,
};

/// A store in a MySQL (8.0.1 or later) or MariaDB (10.6 or later) database, shared by every process
/// that can reach it.
///
/// What the store has acknowledged survives a crash of the process and, with
/// `innodb_flush_log_at_trx_commit = 1`, of the server's machine. A replica that replicates
/// asynchronously may lack the last acknowledged records when it is promoted. Time is the server's
/// clock.
///
/// Each step is one statement in its own transaction, under READ COMMITTED; concurrent claims and
/// completions share statements and commits ([group commit]). A replay, like any outcome for a
/// duplicate that changes nothing, only reads: it locks no record and waits for none. A call waits
/// at most 5 seconds for a connection and 10 seconds for a response.
///
/// The transaction of a handler is an XA transaction, which only the store can end: the server
/// refuses `COMMIT`, `ROLLBACK`, and statements that commit implicitly, such as `CREATE TABLE`. It
/// is committed in one phase, so that nothing stays prepared on the server.
///
/// [Lists for operators](idempotent_core::store::Administration) use indexes. A scan with a filter
/// reads 2,000 records for each page, in the order of the ids. Up to 10,000 records are counted
/// exactly; beyond that, the number is estimated. A decision and its entry in the log are one
/// transaction. A page names a record that cannot be read; `find` fails with an error that does.
///
/// Call [`migrate`](Self::migrate) once before the first claim. To run migrations with another
/// tool, use the SQL in `MIGRATIONS.md` of the repository. The guide [MySQL in production] has the
/// privileges, settings, connections, time limits, outages, and what MySQL does differently from
/// MariaDB.
///
/// [group commit]: https://docs.rs/idempotent-actix/latest/idempotent_actix/guide/mysql/index.html#group-commit
/// [MySQL in production]: https://docs.rs/idempotent-actix/latest/idempotent_actix/guide/mysql/index.html
///
/// # Examples
/// ```no_run
/// # async fn open() -> Result<(), idempotent_core::StoreError> {
/// use idempotent_mysql::MySqlStore;
///
/// let store = MySqlStore::connect("mysql://app@db.internal/payments").await?;
/// store.migrate().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MySqlStore {
    pub(crate) engine: Engine,
    pub(crate) groups: Arc<Groups>,
}

impl MySqlStore {
    /// Returns the default options, to be changed before the store is opened.
    pub fn options() -> MySqlOptions {
        MySqlOptions::new()
    }

    /// [Connects](MySqlOptions::connect) to the database at a URL with the default options.
    ///
    /// # Errors
    /// As for [`MySqlOptions::connect`].
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::options().connect(url).await
    }

    /// [Connects](MySqlOptions::from_pool) as a pool of the application does, with the default
    /// options.
    ///
    /// # Errors
    /// As for [`MySqlOptions::connect`].
    pub async fn from_pool(pool: MySqlPool) -> Result<Self, StoreError> {
        Self::options().from_pool(pool).await
    }

    fn new(pools: Pools, table: TableName, options: &MySqlOptions) -> Self {
        let names = Names { database: pools.server.database.clone(), table };
        let flavor = pools.server.flavor;
        let statements = Arc::new(Statements::new(names, flavor, &Texts::default()));
        let groups = Arc::new(Groups::new(options.limits));
        Self { engine: Engine { pools, statements }, groups }
    }

    /// Creates or upgrades the table. It is safe to call this at every start, and from several
    /// processes at the same time; a table that is up to date is only read.
    ///
    /// # Errors
    /// Fails with a permanent error if the user lacks a privilege, if the table cannot be used, or
    /// if a later release has migrated it to a version that this release cannot use. Fails with a
    /// transient error if the server cannot be reached, or if another process is migrating for more
    /// than a minute.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        on_io_thread("migrate", migrate::migrate(&self.engine)).await
    }

    /// Verifies the version of the schema, the table and its engine, the user's privileges on all
    /// kinds of connections, and that the server guards the transactions of handlers. It changes
    /// nothing.
    ///
    /// # Errors
    /// Fails with a permanent error whose source names what is missing and how to provide it, or
    /// with a transient error if the server cannot be reached.
    pub async fn check(&self) -> Result<(), StoreError> {
        on_io_thread("check", migrate::check(&self.engine)).await
    }
}

/// Opening a store.
impl MySqlOptions {
    /// Connects to the database at a URL, `mysql://user:password@host/database` or `mariadb://…`.
    /// In addition to the parameters of sqlx, the URL accepts `?max_transactions=40`, with the
    /// effect of [`max_transactions`](Self::max_transactions), which takes precedence.
    ///
    /// # Errors
    /// Fails with a transient error if the server cannot be reached. Fails with a permanent error
    /// if the URL or the name of the table is invalid, if a pooler shares sessions between
    /// connections, or if the server is a replica, is too old, has `innodb_flush_log_at_trx_commit`
    /// off, or a `max_allowed_packet` below 4 MiB; the source of the error names the option or the
    /// setting. No error contains the password.
    pub async fn connect(self, url: &str) -> Result<MySqlStore, StoreError> {
        let table = self.table_name()?;
        let (address, max_transactions) = connect::url::parse(url)?;
        let pools = connect::connect(address, self.transactions(max_transactions), None);
        let pools = on_io_thread("connect", pools).await?;
        Ok(MySqlStore::new(pools, table, &self))
    }

    /// Creates a store that opens its connections as a pool of the application does: with the
    /// pool's options, and its `after_connect`. The pool's `max_connections` is the number of
    /// handlers that can have a transaction, unless [`max_transactions`](Self::max_transactions) is
    /// set; up to 16 connections more are for claims, completions and renewals. None is shared with
    /// the pool: what the application leaves in a session would otherwise be in the way of claims.
    ///
    /// The application must build the pool with the same sqlx version (0.9) as this crate.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub async fn from_pool(self, pool: MySqlPool) -> Result<MySqlStore, StoreError> {
        let table = self.table_name()?;
        let size = u16::try_from(pool.options().get_max_connections()).unwrap_or(u16::MAX);
        let max_transactions = self.transactions(NonZeroU16::new(size));
        let pools = on_io_thread("connect", connect::share(pool, max_transactions)).await?;
        Ok(MySqlStore::new(pools, table, &self))
    }
}

impl fmt::Debug for MySqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Names { database, table } = &self.engine.statements.names;
        f.debug_struct("MySqlStore")
            .field("database", database)
            .field("table", &table.as_str())
            .field("server", &self.engine.pools.server.flavor)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MySqlStore {
    async fn migrate(&self) -> Result<(), StoreError> {
        self.migrate().await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.check().await
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        on_io_thread("claim", claim::claim(&self.engine, &self.groups, id, claim)).await
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        on_io_thread("renew", records::renew(&self.engine, leases)).await
    }

    async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        let noted = async {
            let statement = self.engine.statements.steps.note(lease, note);
            self.engine.change("note", statement, Resend::Always).await
        };
        on_io_thread("note", noted).await.map(fence)
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        on_io_thread("complete", claim::complete(&self.engine, &self.groups, lease, recording))
            .await
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        let released = async {
            let statement = self.engine.statements.steps.release(lease);
            self.engine.change("release", statement, Resend::UnlessLost).await
        };
        on_io_thread("release", released).await.map(fence)
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        let abandoned = async {
            let statement = self.engine.statements.steps.abandon(lease, policy);
            self.engine.change("abandon", statement, Resend::UnlessLost).await
        };
        on_io_thread("abandon", abandoned).await.map(fence)
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        on_io_thread("look up", self.engine.read("look up", id)).await.map(snapshot)
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
        audit: &AuditEntry,
    ) -> Result<ResolveOutcome, StoreError> {
        let seen = Lease { id: *id, owner: *seen };
        on_io_thread("resolve", records::resolve(&self.engine, &seen, resolution, audit)).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        on_io_thread("purge", records::purge(&self.engine, limit)).await
    }

    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        let page = records::resumable(&self.engine, operation, after, limit);
        on_io_thread("find resumable", page).await
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }

    fn administration(&self) -> Option<&dyn Administration> {
        Some(&self.engine)
    }

    fn batches(&self) -> Option<BatchSizes> {
        Some(self.groups.claims.sizes().and(&self.groups.completions.sizes()))
    }
}

#[async_trait]
impl Transactions for MySqlStore {
    fn database(&self) -> TypeId {
        TypeId::of::<MySql>()
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>, StoreError> {
        Ok(Box::new(on_io_thread("begin", transaction::begin(&self.engine)).await?))
    }

    async fn claim(
        &self,
        id: &RecordId,
        claim: &Claim,
        wait: Duration,
    ) -> Result<TransactionClaim, StoreError> {
        let claimed = transaction::claim(&self.engine, id, claim, wait.min(MAX_WAIT));
        on_io_thread("claim", claimed).await
    }
}
