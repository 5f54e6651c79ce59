//! The store in a Postgres database.

use std::{any::TypeId, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::{PgPool, Postgres};

use crate::{
    claim::{self, records},
    connect::{self, pools::Pools},
    engine::{Engine, Resend},
    migrate,
    options::PostgresOptions,
    server::{Server, StatementMode, io_thread::on_io_thread},
    sql::{
        names::{Names, SchemaName},
        statements::Texts,
        table::Table,
    },
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
use idempotent_sql::{fence, group_commit::steps::Groups, server::health::MAX_WAIT};

/// A store in a Postgres database (version 12 or later), shared by every process that can reach it.
///
/// What the store has acknowledged survives a crash of the process and, with `fsync` on, of the
/// server's machine. A standby that replicates asynchronously may lack the last acknowledged
/// records when it is promoted. Time is the server's clock.
///
/// Each step is one statement in its own transaction, under READ COMMITTED; concurrent claims and
/// completions share statements and commits ([group commit]). A replay, like any outcome for a
/// duplicate that changes nothing, only reads: it locks no row and waits for none. A call waits at
/// most 5 seconds for a connection and 10 seconds for a response. A handler must not end the
/// [transaction] that it gets.
///
/// [Lists for operators](idempotent_core::store::Administration) use indexes. A scan with a filter
/// reads 2,000 records for each page, in the order of the ids. Up to 10,000 records are counted
/// exactly; beyond that, the number is estimated. A decision and its entry in the log are one
/// statement. A page names a record that cannot be read; `find` fails with an error that does.
///
/// Call [`migrate`](Self::migrate) once before the first claim. To run migrations with another
/// tool, use the SQL in `MIGRATIONS.md` of the repository. The guide [Postgres in production] has
/// the privileges, settings, connections, poolers, time limits, outages and logs.
///
/// [group commit]: https://docs.rs/idempotent-actix/latest/idempotent_actix/guide/postgres/index.html#group-commit
/// [transaction]: https://docs.rs/idempotent-actix/latest/idempotent_actix/guide/postgres/index.html#transactions-of-handlers
/// [Postgres in production]: https://docs.rs/idempotent-actix/latest/idempotent_actix/guide/postgres/index.html
///
/// # Examples
/// ```no_run
/// # async fn open() -> Result<(), idempotent_core::StoreError> {
/// use idempotent_postgres::PostgresStore;
///
/// let store = PostgresStore::connect("postgres://app@db.internal/payments").await?;
/// store.migrate().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresStore {
    pub(crate) engine: Engine,
    pub(crate) groups: Arc<Groups>,
    pub(crate) partitions: u16,
}

impl PostgresStore {
    /// Returns the default options, to be changed before the store is opened.
    pub fn options() -> PostgresOptions {
        PostgresOptions::new()
    }

    /// [Connects](PostgresOptions::connect) to the database at a URL with the default options.
    ///
    /// # Errors
    /// As for [`PostgresOptions::connect`].
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::options().connect(url).await
    }

    /// [Shares a pool](PostgresOptions::from_pool) with the application, with the default options.
    ///
    /// # Errors
    /// As for [`PostgresOptions::connect`].
    pub async fn from_pool(pool: PgPool) -> Result<Self, StoreError> {
        Self::options().from_pool(pool).await
    }

    fn new(pools: Pools, names: Names, options: &PostgresOptions) -> Self {
        let Server { mode, own_sessions, .. } = pools.server;
        let bounded = mode == StatementMode::Prepared && !(own_sessions && pools.steps.is_own());
        let table = Arc::new(Table::new(Names { bounded, ..names }, Texts::default()));
        let groups = Arc::new(Groups::new(options.limits));
        Self { engine: Engine { pools, table }, groups, partitions: options.partitions }
    }

    /// Creates or upgrades the table. It is safe to call this at every start, and from several
    /// processes at the same time; a table that is up to date is only read.
    ///
    /// # Errors
    /// Fails with a permanent error if the role lacks a privilege, if a setting of the server is
    /// unsafe, or if a later release has migrated the table to a version that this release cannot
    /// use. Fails with a transient error if the server cannot be reached.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        on_io_thread("migrate", migrate::migrate(&self.engine, self.partitions)).await
    }

    /// Verifies the server's settings, the version of the schema, the role's privileges, and that
    /// the connections for steps, batches, renewals and handlers have the same role and find the
    /// same table. It changes nothing.
    ///
    /// # Errors
    /// Fails with a permanent error whose source names what is missing and how to provide it, or
    /// with a transient error if the server cannot be reached.
    pub async fn check(&self) -> Result<(), StoreError> {
        on_io_thread("check", migrate::check(&self.engine)).await
    }
}

/// Opening a store.
impl PostgresOptions {
    /// Connects to the database at a URL, `postgres://user:password@host/database`. In addition to
    /// the parameters of sqlx, the URL accepts `?max_transactions=40`, with the effect of
    /// [`max_transactions`](Self::max_transactions), which takes precedence.
    ///
    /// # Errors
    /// Fails with a transient error if the server cannot be reached. Fails with a permanent error
    /// if the URL or the name of the table or the schema is invalid, or if the server is a read
    /// replica, is older than Postgres 12, has `default_transaction_read_only` on or
    /// `synchronous_commit` off, has advisory locks that lock nothing, or is behind a pooler that
    /// does not keep the session of a transaction; the source of the error names the option or the
    /// setting. No error contains the password.
    pub async fn connect(self, url: &str) -> Result<PostgresStore, StoreError> {
        let names = self.names()?;
        let (address, max_transactions) = connect::url::parse(url)?;
        let pools = connect::connect(address, self.transactions(max_transactions));
        let pools = on_io_thread("connect", pools).await?;
        Ok(PostgresStore::new(pools, names, &self))
    }

    /// Creates a store that shares a pool with the application. Renewals get a separate connection,
    /// and [batches](Self::group_commit) two to four, opened with the pool's options. The pool's
    /// `after_connect` is called for these too, on the thread of the store's connections; the time
    /// limits that it sets are replaced there by the store's.
    ///
    /// The application must build the pool with the same sqlx version (0.9) as this crate.
    ///
    /// The transactions of handlers use the pool too, and each keeps a connection while its handler
    /// runs. Claims wait for a connection for as long as the pool's `acquire_timeout`. Therefore
    /// set that timeout, and make the pool larger than the number of such handlers.
    ///
    /// A shared pool has these limits:
    ///
    /// * Its connections are bound to the Tokio runtime on which the application opened them.
    /// * While the server does not respond, sqlx's pool keeps dead connections; each can delay one
    ///   request by a second afterwards.
    /// * sqlx pings each connection that is returned, without a time limit. If the server
    ///   disappears silently at that moment, the connection keeps its place in the pool until the
    ///   operating system closes it (on Linux after about 15 minutes, see `tcp_retries2`).
    /// * Behind a pooler in transaction mode, the store opens further connections, up to the size
    ///   of the pool, because it cannot prevent the pool's connections from logging plain
    ///   statements.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub async fn from_pool(self, pool: PgPool) -> Result<PostgresStore, StoreError> {
        let names = self.names()?;
        let pools = on_io_thread("connect", connect::share(pool)).await?;
        Ok(PostgresStore::new(pools, names, &self))
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Names { schema, table, .. } = self.engine.names();
        let mut shown = f.debug_struct("PostgresStore");
        shown
            .field("schema", &schema.as_ref().map(SchemaName::as_str))
            .field("table", &table.as_str());
        shown.field("mode", &self.engine.pools.server.mode).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for PostgresStore {
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
            let statement = self.engine.statements("note").await?.steps.note(lease, note);
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
            let statement = self.engine.statements("release").await?.steps.release(lease);
            self.engine.change("release", statement, Resend::UnlessLost).await
        };
        on_io_thread("release", released).await.map(fence)
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        let abandoned = async {
            let statement = self.engine.statements("abandon").await?.steps.abandon(lease, policy);
            self.engine.change("abandon", statement, Resend::UnlessLost).await
        };
        on_io_thread("abandon", abandoned).await.map(fence)
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        on_io_thread("look up", records::look_up(&self.engine, id)).await
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
impl Transactions for PostgresStore {
    fn database(&self) -> TypeId {
        TypeId::of::<Postgres>()
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
