//! The store in a Postgres database.

use std::{
    any::TypeId,
    fmt,
    num::{NonZeroU16, NonZeroUsize},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::{PgPool, Postgres};

use crate::{
    claim::{
        self,
        batches::{ALONE, Groups},
        records,
    },
    connect::{self, pools::Pools},
    engine::{Engine, Resend},
    migrate,
    server::{Server, StatementMode, health::MAX_WAIT, io_thread::on_io_thread},
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
        Claim, ClaimOutcome, Fence, Note, RenewOutcome, Renewal, Resolution, ResolveOutcome,
        ResumablePage, Snapshot,
    },
    store::{Store, Transaction, TransactionClaim, Transactions},
};
use idempotent_sql::{InvalidTableName, TableName, fence, group_commit::GroupCommitLimits};

/// A store in a Postgres database (version 12 or later), shared by every process that can reach it.
///
/// Claiming a new key and replaying a recording take one round trip each. A replay, like any
/// outcome for a duplicate that changes nothing, only reads: it locks no row and waits for none.
///
/// What the store has acknowledged survives a crash of the process and, with `fsync` on, of the
/// server's machine. A standby that replicates asynchronously may lack the last acknowledged
/// records when it is promoted.
///
/// Time is the server's clock. Each step is one statement in its own transaction, under READ
/// COMMITTED. The transactions of handlers have the isolation level that the database or the URL
/// sets. If such a transaction cannot be serialized, it is rolled back, and the client may retry.
///
/// Call [`migrate`](Self::migrate) once before the first claim. To run migrations with another
/// tool, use the SQL in `MIGRATIONS.md` of the repository.
///
/// # Connections
/// The store can be called from any Tokio runtime. Its connections are driven by a thread named
/// `idempotency-pg`, which all Postgres stores of the process share. The store opens at most ten
/// connections for claims and completions, two more while [batches](#group-commit) are late, one
/// for renewals (up to three while one is late), and ten for the
/// [transactions](Self::max_transactions) of handlers. A call waits at most 5 seconds for a
/// connection or its place in a [batch](#group-commit), and 10 seconds for a response.
///
/// If a call is dropped, its connection keeps its place in the pool until the server's session is
/// idle or has ended. The number of sessions on the server therefore never exceeds the sizes of the
/// pools, plus one for a health probe.
///
/// If a handler is dropped in the middle of a statement, the statement may continue for a second.
/// Then its connection is closed, and the server ends the statement within another second. The
/// latter requires Postgres 14 on an operating system that can detect a closed connection;
/// elsewhere the session lives until the statement ends. A pool of the application does not wait
/// for this: it regards a connection as gone as soon as it is closed.
///
/// sqlx does not log statements on the store's own connections, including those of handlers. To
/// have the statements of handlers logged, [share a pool](Self::from_pool).
///
/// # Group commit
/// Concurrent claims and completions are executed together: one statement and one commit for many
/// of them. With few concurrent requests nothing changes: a step is executed alone while fewer than
/// eight others of its kind are under way and no batch is. Otherwise it joins the next batch, which
/// takes up to [64 steps](Self::max_batch_steps) or [1 MiB](Self::max_batch_bytes) as soon as the
/// batch before it has ended. No step waits for others to arrive. A recording of 64 KiB or more is
/// always completed and replayed by a step alone, which is faster, and a batch of replays returns
/// no more bytes than a batch may send.
///
/// A batch settles claims of new keys, replays and conflicts, and completions by their owner. Any
/// other outcome, such as a takeover, needs more than one statement, and is found by executing the
/// step alone. If a batch fails or exceeds its time limit, each of its steps is executed alone. A
/// step whose caller drops it in the queue is not executed.
///
/// A batch may be late because one of its records is slow to write, or because its connection is
/// dead. The steps that queue behind it wait for four times as long as a batch usually takes, at
/// least 50 ms and at most 500 ms. Then the next batch passes the late one on another connection.
/// If three batches of a kind are late, the steps are executed alone. The server ends a batch after
/// a second, and one that gets no response has failed after three seconds.
///
/// Batches have two of the ten connections, and the two that are opened while batches are late.
/// [`group_commit(false)`](Self::group_commit) switches them off.
///
/// # Server logs
/// Responses and digests of requests are sent as parameters, never as part of a statement's text.
/// With default settings the server's log contains none of their bytes, whatever fails; it may
/// contain record ids. Check these settings:
///
/// * ServerSettings that log successful statements, such as `log_min_duration_statement`, also log
///   parameters unless `log_parameter_max_length` is 0.
/// * `auto_explain` has its own `auto_explain.log_parameter_max_length` (Postgres 16).
/// * Leave `log_parameter_max_length_on_error` at 0.
/// * A `CHECK` constraint that you add to the table logs the rows that violate it.
///
/// # Waits and outages
/// Time limits of the store's statements:
///
/// * A statement waits at most 100 ms for another transaction's lock (a batch 20 ms), and the
///   server ends it after 9 seconds (a renewal after 3 seconds, a batch after 1 second). In a
///   [shared](Self::from_pool) pool, a single statement waits for up to 10 seconds for a lock on
///   the table, except a claim in a transaction, which gives up after about 600 ms. A completion in
///   a handler's transaction waits for up to 10 seconds for such a lock in any session.
/// * A claim of a locked record returns that the key is in flight.
/// * A takeover of a locked record is repeated for about a second in all, and releases its
///   connection between the attempts. After that it returns that the key is in flight.
/// * A completion, a release or an abandonment is repeated in the same way. After that it fails
///   with a transient error.
/// * A renewal does not wait for locked records.
/// * A claim with `claim = "transaction"` waits for another transaction with the key as long as its
///   caller requests, and not at all by default. It tries again about every 10 ms, and after a
///   while every 160 ms; in between it has no connection.
///
/// Statements of handlers have the timeouts of the database or the URL.
///
/// If a call gets no response for half a second, the store starts a probe: a new connection and a
/// trivial statement. If the probe gets no response within 2 seconds, the server is considered
/// down: pending calls end and new calls fail at once, with transient errors, until a probe
/// succeeds. The next probe follows after about half a second. Each failed probe doubles the time
/// limit of the next one, up to 4 seconds; a successful probe sets the limit to twice the time that
/// it took, but at least 2 seconds.
///
/// A session on a server that has become a standby, that the server has ended, or whose statements
/// a migration has outdated never returns to a pool, and the call is repeated once on another
/// connection if it had no effect. While no primary can be reached, or the database does not exist
/// because it is being restored, calls fail with transient errors.
///
/// An error response or a slow server does not count as an outage. Behind a pooler, which accepts
/// clients and queues their statements while its sessions are busy, a probe succeeds as soon as it
/// is connected. A connection that was idle for more than a second is pinged before its next use.
/// Statements of handlers are not monitored: set a `timeout` for the handler.
///
/// # Transactions of handlers
/// The record is completed in the transaction that the store has begun, or not at all. A handler
/// must not end that transaction itself (`COMMIT`, `ROLLBACK`, `PREPARE TRANSACTION`), and must not
/// execute `RESET ALL` in it. The completion then fails, even if the handler begins another
/// transaction. After the end of the transaction the runtime holds the key, because what the
/// handler has written since is unknown. Each transaction has an advisory lock, so that another
/// session can find out whether it is open while the handler's last statement still runs.
///
/// The server refuses such a `COMMIT` or `PREPARE TRANSACTION`, and rolls the transaction back. For
/// this purpose the store declares a cursor, `idempotent_guard`, so a handler must not execute
/// `CLOSE ALL`, and cannot change the isolation level. What a handler writes after the end of the
/// transaction fails (`25006`): the store's sessions for handlers have
/// `default_transaction_read_only`, and only transactions that are begun with `READ WRITE` may
/// write. In the sessions of a [shared](Self::from_pool) pool, or behind a pooler, the store cannot
/// set that. What the handler writes there is committed by itself.
///
/// With `claim = "transaction"` the transaction takes an advisory lock of the key, and inserts the
/// record when it is completed. The number of the lock is 64 bits of the record's id, which is a
/// hash, combined with the table's `oid` by `XOR`, so a lock of the application is as unlikely to
/// have it as any other number. If
/// one has it, a request waits or gets 409 in vain. A foreign key of the application that refers to
/// the record must be `DEFERRABLE INITIALLY DEFERRED`. Any other claim of a new key holds the lock
/// while its statement runs; a [batch](#group-commit) takes one lock for each new key. The server
/// has room for about `max_locks_per_transaction × max_connections` locks.
///
/// Session settings, `LISTEN` registrations and temporary tables of a handler do not reach the next
/// handler, and after `DEALLOCATE` or `DISCARD` the connection is replaced. Session-level advisory
/// locks, cursors declared `WITH HOLD` and statements prepared by SQL (`PREPARE`) are not reset:
/// release them, or use transaction-level locks and cursors and the driver's prepared statements.
/// In a shared pool or behind a pooler, the application is responsible for the state of the
/// sessions. A handler that changes the `search_path` directs no statement of the store to another
/// table: the schema of the table is looked up once, and every statement names it.
///
/// # Poolers and isolation levels
/// The store keeps no state in the server's session except prepared statements, and these only if
/// each connection has its own session. When the store is opened, it detects a pooler such as
/// PgBouncer in transaction mode, which shares sessions between clients or does not pass on the
/// store's settings. It then sends *plain statements*: each as text, without preparing it. It does
/// the same if `default_transaction_isolation` is not READ COMMITTED, because a plain message can
/// set its own isolation level.
///
/// With plain statements the rate of replays is about a third. A claim of a new key takes five
/// round trips and a completion four, because their confidential values are sent separately.
///
/// The URL's parameter `statement-cache-capacity` overrides the detection: `0` sends plain
/// statements, and any other number prepares them, for poolers that track prepared statements. The
/// number 100 has no effect, because it is sqlx's default. If prepared statements then run under
/// another isolation level, those that cannot be serialized are repeated up to three times.
///
/// With `claim = "lease"`, a handler's transaction above READ COMMITTED must end before its lease
/// is renewed, which happens after a third of the lease. The renewal writes the record, so that the
/// completion can no longer be serialized; the effects are then rolled back, and the error is
/// transient. Choose a longer lease for such handlers.
///
/// # Privileges
/// The role needs USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on the table.
/// [`migrate`](Self::migrate) also needs SELECT on the table `…_migrations`. The first migration
/// needs CREATE on the schema, or CREATE on the database if the schema does not exist yet.
/// [`check`](Self::check) and `migrate` name what is missing. Row-level security must not apply to
/// the role.
///
/// # TLS
/// `sslmode=require` and stronger modes need one of sqlx's `tls-…` features in the application's
/// manifest. Without it, opening the store fails with an error that says so.
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
    /// Connects to the database at a URL, `postgres://user:password@host/database`. In addition to
    /// the parameters of sqlx, the URL accepts `?max_transactions=40`, with the effect of
    /// [`max_transactions`](Self::max_transactions).
    ///
    /// # Errors
    /// Fails with a transient error if the server cannot be reached. Fails with a permanent error
    /// if the URL is invalid, or if the server is a read replica, is older than Postgres 12, or has
    /// `default_transaction_read_only` on or `synchronous_commit` off; the source of the error
    /// names the setting. No error contains the password.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let (options, max_transactions) = connect::url::parse(url)?;
        let max_transactions = max_transactions.unwrap_or(connect::MAX_TRANSACTIONS);
        let pools = connect::connect(options, max_transactions);
        on_io_thread("connect", pools).await.map(Self::new)
    }

    /// Sets how many handlers can have a transaction at the same time; the default is 10. Any other
    /// handler waits for a connection, for up to 5 seconds, before its transaction begins. A replay
    /// waits for one for 50 ms at most.
    ///
    /// The server must accept this number of sessions from each process. The setting has no effect
    /// on a [shared](Self::from_pool) pool, whose `max_connections` applies.
    #[must_use]
    pub fn max_transactions(mut self, max_size: NonZeroU16) -> Self {
        if let Ok(transactions) =
            self.engine.pools.transactions.with_max_size(max_size.get().into())
        {
            self.engine.pools.transactions = transactions;
        }
        self
    }

    /// Creates a store that shares a pool with the application. Renewals get a separate connection,
    /// and [batches](#group-commit) two to four, opened with the pool's options. The pool's
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
    pub async fn from_pool(pool: PgPool) -> Result<Self, StoreError> {
        on_io_thread("connect", connect::share(pool)).await.map(Self::new)
    }

    fn new(pools: Pools) -> Self {
        let Server { mode, own_sessions, .. } = pools.server;
        let names = Names {
            bounded: mode == StatementMode::Prepared && !(own_sessions && pools.steps.is_own()),
            ..Names::default()
        };
        let table = Arc::new(Table::new(names, Texts::default()));
        Self { engine: Engine { pools, table }, groups: Arc::default(), partitions: 0 }
    }

    /// Sets the name of the table; the default is `idempotency_records`.
    ///
    /// # Errors
    /// Fails if the name is not 1 to 48 ASCII letters, digits and underscores, or starts with a
    /// digit.
    pub fn table(self, name: &str) -> Result<Self, InvalidTableName> {
        let names = Names { table: TableName::new(name)?, ..self.engine.names().clone() };
        Ok(self.with_names(names))
    }

    /// Sets the schema of the table; the default is the first schema in the `search_path` that has
    /// the table, which is looked up once. [`migrate`](Self::migrate) creates the schema if it does
    /// not exist.
    ///
    /// # Errors
    /// As for [`table`](Self::table).
    pub fn schema(self, name: &str) -> Result<Self, InvalidTableName> {
        let schema = Some(TableName::new(name)?.into());
        let names = Names { schema, ..self.engine.names().clone() };
        Ok(self.with_names(names))
    }

    /// The batches of another table are separate.
    fn with_names(self, names: Names) -> Self {
        let table = Arc::new(Table::new(names, Texts::default()));
        let groups = Arc::new(Groups::new(self.groups.limits()));
        Self { engine: Engine { table, ..self.engine }, groups, ..self }
    }

    /// Sets whether concurrent claims and completions are executed in [batches](#group-commit); the
    /// default is `true`.
    #[must_use]
    pub fn group_commit(self, enabled: bool) -> Self {
        let alone = if enabled { ALONE } else { usize::MAX };
        let limits = self.groups.limits();
        self.with_limits(GroupCommitLimits { alone, ..limits })
    }

    /// Sets the largest number of steps in a [batch](#group-commit); the default is 64.
    #[must_use]
    pub fn max_batch_steps(self, steps: NonZeroU16) -> Self {
        let limits = self.groups.limits();
        self.with_limits(GroupCommitLimits { steps, ..limits })
    }

    /// Sets about how many bytes a [batch](#group-commit) sends, unless a single step is larger,
    /// and how many bytes of recordings it returns; the default is 1 MiB. The process and the
    /// server each have a whole batch in memory.
    #[must_use]
    pub fn max_batch_bytes(self, bytes: NonZeroUsize) -> Self {
        let limits = self.groups.limits();
        self.with_limits(GroupCommitLimits { bytes, ..limits })
    }

    pub(crate) fn with_limits(self, limits: GroupCommitLimits) -> Self {
        Self { groups: Arc::new(Groups::new(limits)), ..self }
    }

    /// Sets the number of hash partitions that [`migrate`](Self::migrate) creates for a new table;
    /// the default is 0, which does not partition the table. With many millions of records, 16 to
    /// 64 partitions keep indexes small and vacuums short. An existing table is left unchanged.
    #[must_use]
    pub fn partitions(self, parts: u16) -> Self {
        Self { partitions: parts, ..self }
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
            let statement = self.engine.statements("note").await?.note(lease, note);
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
            let statement = self.engine.statements("release").await?.release(lease);
            self.engine.change("release", statement, Resend::UnlessLost).await
        };
        on_io_thread("release", released).await.map(fence)
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        let abandoned = async {
            let statement = self.engine.statements("abandon").await?.abandon(lease, policy);
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
    ) -> Result<ResolveOutcome, StoreError> {
        let seen = Lease { id: *id, owner: *seen };
        on_io_thread("resolve", records::resolve(&self.engine, &seen, resolution)).await
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
