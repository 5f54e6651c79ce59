//! The store in a Postgres database.

use std::{fmt, num::NonZeroU16, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::PgPool;

use self::{
    connect::{Pools, Server, Way},
    driver::driven,
    run::Again,
    statements::{Names, Statements},
};
pub use super::sql::InvalidTableName;
use super::sql::{TableName, fence};
use crate::{
    error::StoreError,
    lease::{Lease, OwnerToken},
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence, RenewOutcome, Renewal, Resolution, ResolveOutcome, Snapshot},
    record_id::RecordId,
    store::{Store, Transactions},
};

mod claiming;
mod connect;
mod driver;
mod error;
mod health;
mod migrate;
mod privileges;
mod run;
mod sessions;
mod statement;
mod statements;
mod transaction;

const NAME: &str = "postgres";
/// A store in a Postgres database (12 or later), shared by every process that reaches it.
///
/// A claim of a new key and a replay take one round trip each. A replay, like every answer to a duplicate, only reads: it locks no
/// row and waits for none. What the store acknowledged survives the death of the process and, with `fsync` on, of the server's
/// machine; a standby that follows asynchronously can miss the last claims when it is promoted.
///
/// Time is the server's clock. Each step is one statement that commits by itself, under READ COMMITTED. The transactions of handlers
/// have the isolation that the database or the URL says; what then fails to serialize is rolled back, and the client is told to come again.
///
/// Call [`migrate`](Store::migrate) once before the first claim. Those who run migrations themselves find the schema in
/// `sql/postgres/migrations.sql` and `sql/postgres/migrate_1.sql` of this crate, and enter the version in the list of the former.
///
/// # Connections
/// The store works from every runtime and thread: its connections are driven by a thread of its own, `idempotency-pg`, one for the
/// process. Leases are renewed over a connection of their own that no claim can take. A call waits at most 5 seconds for a
/// connection, and 10 for a response.
///
/// A call that is given up keeps its place in the pool until the server's session is idle again or gone, so that the server never has
/// more sessions than the pools have places, but for one more while a probe looks whether the server responds. A handler's statement that
/// is given up may go on for a second; then its connection is closed, and the server ends it within another second. That needs Postgres 14
/// on a system where it can tell; elsewhere the session lives until the statement ends. A pool of the application's counts a
/// connection as gone when it is closed.
///
/// On connections of the store's own, sqlx logs no statements, those of handlers included; share a [pool](Self::from_pool) to have
/// these in its log.
///
/// # Logs of the server
/// Responses and digests of requests are parameters of their statements and never part of a statement's text, so that the log of a server
/// with default settings has no byte of them, whatever fails; it may have the ids of records. Settings that log statements which succeed, such as `log_min_duration_statement`, log parameters too unless
/// `log_parameter_max_length` is 0; `auto_explain` has a setting of its own, `auto_explain.log_parameter_max_length` (Postgres 16). Leave
/// `log_parameter_max_length_on_error` at 0. Where you add a `CHECK` to the table, a row that violates it is shown in the log.
///
/// # Waits and outages
/// A statement of the store's own waits a tenth of a second for another transaction's lock. A claim then returns that the key is in
/// flight. A takeover and the end of a claim wait again, for about a second in all, and let others have the connection in between; then
/// the key is in flight, and the end fails with a transient error. A renewal waits for no record. In the server a statement ends after 9 seconds. Statements of handlers
/// have the settings of the database or the URL; a claim in their transaction waits as long as its caller says, whatever the role's time-outs.
///
/// A call that has had no response for half a second starts a probe, a new connection with a trivial statement. If that has no
/// response within two seconds, the store is down: pending calls end, and new ones fail at once, with transient errors. Probes
/// with half a second between them find out when the server is back. Each that fails doubles the time that the next one has, up to
/// 4 seconds; one that succeeds sets it to twice the time that it took, and to two seconds at least. A pooler lets clients in and
/// queues their statements while all of its sessions are in use: behind one, a probe that was let in has succeeded. An error that the
/// server sends, and a server that is slow, do not make it down. A connection
/// that was idle for more than a second is pinged before it is used again. The statements of handlers are not watched: bound
/// their work by a timeout.
///
/// # Transactions of handlers
/// The record is completed in the transaction that the store has begun, or not at all. If a handler ends it by SQL of its own (`COMMIT`,
/// `ROLLBACK`, `PREPARE TRANSACTION`), its attempt does not complete, whatever it begins after that. What it has committed itself
/// stays; nothing says that the operation was done, so with `abandoned = "retry"` the operation can run again. With `claim = "transaction"`
/// such a `COMMIT` commits the claim as well, and the key is in flight until its lease is over. `RESET ALL` in a handler's
/// transaction has the same effect as ending it.
///
/// What a handler sets in its session, listens to or creates as temporary tables does not reach the next handler, and after
/// `DEALLOCATE` or `DISCARD` the connection is replaced. Advisory locks of a session, cursors that are declared `WITH HOLD` and what is prepared
/// by SQL (`PREPARE`) stay with it: release them, or use locks and cursors of the transaction and the driver's prepared statements. Sessions of
/// a shared pool or behind a pooler are the application's to look after: where handlers change `search_path`, name the
/// [schema](Self::schema).
///
/// # Poolers and isolation
/// Nothing is left with the server's session but prepared statements, and those only where a connection has a session to itself:
/// the store looks when it is opened, and sends statements whole where a pooler such as PgBouncer deals sessions out by the
/// transaction, or does not pass on the settings that the store's sessions begin with. So it does where `default_transaction_isolation` is not
/// READ COMMITTED, since a whole message can name its own.
/// That gives about a third of the replays a second. A claim of a new key then takes five round trips and a completion four, since the
/// values of these are sent apart from their statements. The URL's parameter `statement-cache-capacity` decides before the look does:
/// `0` sends statements whole; any other number but 100, which is sqlx's default, prepares them, as poolers that follow prepared
/// statements allow. Where they are then not READ COMMITTED, what fails to serialize is run again up to three times.
///
/// With `claim = "lease"` a transaction that is not READ COMMITTED has to end before its lease is renewed, after a third of the lease: the
/// renewal writes the record, after which the completion cannot be serialized. The effects are rolled back, and the error is
/// transient. Handlers that need such a transaction for longer need a longer lease.
///
/// A probe goes through the pooler too: while all its sessions are taken for long, the store is down.
///
/// # Privileges
/// The role needs USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on the table; for [`migrate`](Store::migrate) also SELECT on the
/// table's `…_migrations`. [`check`](Store::check) and `migrate` name what is missing. Row-level security must not apply to the role.
///
/// # TLS
/// `sslmode=require` and stronger ask for one of sqlx's `tls-…` features; without one, opening the store fails and says so.
///
/// # Examples
/// ```no_run
/// # async fn open() -> Result<(), idempotent_core::StoreError> {
/// use idempotent_core::{Store, store::postgres::PostgresStore};
///
/// let store = PostgresStore::connect("postgres://app@db.internal/payments").await?;
/// store.migrate().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresStore {
    pools: Pools,
    statements: Arc<Statements>,
    partitions: u16,
    namespace: Option<Arc<str>>,
}

impl PostgresStore {
    /// Opens a database by its URL, with up to ten connections of the store's own, one more that renews, and up to ten that handlers have
    /// for their transactions, or as many as [`max_transactions`](Self::max_transactions) or the URL's parameter of this name
    /// says (`?max_transactions=40`).
    ///
    /// # Errors
    /// When the server cannot be reached, is a read replica, has `default_transaction_read_only` on or `synchronous_commit` off, or
    /// is older than Postgres 12. The error's source names the setting; neither shows the password.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let (url, namespace) = super::namespace::split(NAME, url)?;
        let (url, transactions) = connect::transactions(&url)?;
        let pools = driven("connect", connect::connect(&url)).await?;
        let store = Self { namespace, ..Self::new(pools) };
        Ok(match transactions {
            Some(most) => store.max_transactions(most),
            None => store,
        })
    }

    /// Lets this many handlers have a transaction at once, ten by default. A handler beyond that waits for a connection, for up to 5 seconds,
    /// before it begins; let the server have room for as many sessions, of each process. It has no effect on a pool
    /// that the application [shares](Self::from_pool), whose `max_connections` counts.
    #[must_use]
    pub fn max_transactions(mut self, most: NonZeroU16) -> Self {
        if let Ok(transactions) = self.pools.transactions.with_most(most.get().into()) {
            self.pools.transactions = transactions;
        }
        self
    }

    /// Shares a pool with the application. Renewals have a connection of their own, opened with the pool's options.
    ///
    /// Handlers' transactions are the pool's too, and each keeps a connection while its handler runs. Claims wait for connections like
    /// everybody else, for as long as the pool's `acquire_timeout`: bound it, and let the pool be larger than the number of such handlers
    /// that run at once. Those that the
    /// application opened are bound to the runtime that it opened them on. While the server does not respond, sqlx's pool keeps
    /// connections that are dead: each of them can cost one request a second afterwards. It pings each connection that is given back, and
    /// waits for the response without a limit: one whose server is lost without a word in that moment keeps its place until the operating
    /// system gives the connection up (on Linux after about 15 minutes, see `tcp_retries2`). Behind a pooler that deals out sessions by the
    /// transaction the store opens as many connections as the pool may have, for itself: it cannot keep the pool's from logging
    /// statements.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn from_pool(pool: PgPool) -> Result<Self, StoreError> {
        driven("connect", connect::share(pool)).await.map(Self::new)
    }

    fn new(pools: Pools) -> Self {
        let Server { way, own_sessions, .. } = pools.server;
        let names =
            Names { bounded: way == Way::Prepared && !(own_sessions && pools.steps.is_own()), ..Names::default() };
        Self { pools, statements: Arc::new(Statements::new(names)), partitions: 0, namespace: None }
    }

    /// Keeps the records in this table, in place of `idempotency_records`.
    ///
    /// # Errors
    /// When the name is not 1 to 48 ASCII letters, digits and underscores, or starts with a digit.
    pub fn table(self, name: &str) -> Result<Self, InvalidTableName> {
        let names = Names { table: TableName::new(name)?, ..self.statements.names.clone() };
        Ok(Self { statements: Arc::new(Statements::new(names)), ..self })
    }

    /// Keeps the table in this schema, in place of the first one of the server's `search_path`. `migrate` creates it if need be.
    ///
    /// # Errors
    /// As [`table`](Self::table).
    pub fn schema(self, name: &str) -> Result<Self, InvalidTableName> {
        let names = Names { schema: Some(TableName::new(name)?), ..self.statements.names.clone() };
        Ok(Self { statements: Arc::new(Statements::new(names)), ..self })
    }

    /// Lets [`migrate`](Store::migrate) divide a new table into so many parts by a hash of the key, which keeps indexes small and
    /// vacuums short where there are many millions of records; 16 to 64 is usual. A table that exists stays as it is.
    #[must_use]
    pub fn partitions(self, parts: u16) -> Self {
        Self { partitions: parts, ..self }
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Names { schema, table, .. } = &self.statements.names;
        let mut shown = f.debug_struct("PostgresStore");
        shown.field("schema", &schema.as_ref().map(TableName::as_str)).field("table", &table.as_str());
        shown.field("way", &self.pools.server.way).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn migrate(&self) -> Result<(), StoreError> {
        let migrated = async {
            self.apply_migrations().await?;
            self.verify("migrate").await
        };
        driven("migrate", migrated).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        driven("check", async {
            self.verify("check").await?;
            self.check_version().await
        })
        .await
    }

    fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        driven("claim", self.claim_by_rounds(id, claim)).await
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        driven("renew", self.renew_leases(leases)).await
    }

    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        let statement = self.statements.complete(lease, recording);
        driven("complete", self.change("complete", statement, Again::Safe)).await.map(fence)
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        let statement = self.statements.release(lease);
        driven("release", self.change("release", statement, Again::Differs)).await.map(fence)
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        let statement = self.statements.abandon(lease, policy);
        driven("abandon", self.change("abandon", statement, Again::Differs)).await.map(fence)
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        driven("look up", self.found(id)).await
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
    ) -> Result<ResolveOutcome, StoreError> {
        driven("resolve", self.resolve_held(&Lease { id: *id, owner: *seen }, resolution)).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        driven("purge", self.remove_expired(limit)).await
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }
}
