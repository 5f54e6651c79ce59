//! The store in a Postgres database.

use std::{fmt, num::NonZeroU16, sync::Arc};

use sqlx::PgPool;

use self::{
    batches::Groups,
    connect::Pools,
    io_thread::on_io_thread,
    names::{Names, SchemaName},
    server::{Server, StatementMode},
    table::Table,
};
use idempotent_core::{StoreError, store::Store};
pub use idempotent_sql::InvalidTableName;
use idempotent_sql::TableName;

mod batches;
mod claim;
mod connect;
mod error;
mod execute;
mod in_transaction;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod io_thread;
mod lifecycle;
mod mark;
mod migrate;
mod names;
mod open_transaction;
mod privileges;
mod server;
mod server_health;
mod sessions;
mod statement;
mod statements;
mod store_impl;
mod table;
mod table_facts;
mod timeouts;
mod transaction;

const NAME: &str = "postgres";

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
    pools: Pools,
    table: Arc<Table>,
    groups: Arc<Groups>,
    partitions: u16,
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
        let (options, transactions) = connect::parse(url)?;
        let pools = on_io_thread("connect", connect::connect(options)).await?;
        let store = Self::new(pools);
        Ok(match transactions {
            Some(max_size) => store.max_transactions(max_size),
            None => store,
        })
    }

    /// Sets how many handlers can have a transaction at the same time; the default is 10. Any other
    /// handler waits for a connection, for up to 5 seconds, before its transaction begins. A replay
    /// waits for one for 50 ms at most.
    ///
    /// The server must accept this number of sessions from each process. The setting has no effect
    /// on a [shared](Self::from_pool) pool, whose `max_connections` applies.
    #[must_use]
    pub fn max_transactions(mut self, max_size: NonZeroU16) -> Self {
        if let Ok(transactions) = self.pools.transactions.with_max_size(max_size.get().into()) {
            self.pools.transactions = transactions;
        }
        self
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
    pub async fn from_pool(pool: PgPool) -> Result<Self, StoreError> {
        on_io_thread("connect", connect::share(pool)).await.map(Self::new)
    }

    fn new(pools: Pools) -> Self {
        let Server { mode, own_sessions, .. } = pools.server;
        let names = Names {
            bounded: mode == StatementMode::Prepared && !(own_sessions && pools.steps.is_own()),
            ..Names::default()
        };
        Self {
            pools,
            table: Arc::new(Table::default().with_names(names)),
            groups: Arc::default(),
            partitions: 0,
        }
    }

    /// Sets the name of the table; the default is `idempotency_records`.
    ///
    /// # Errors
    /// Fails if the name is not 1 to 48 ASCII letters, digits and underscores, or starts with a
    /// digit.
    pub fn table(self, name: &str) -> Result<Self, InvalidTableName> {
        let names = Names { table: TableName::new(name)?, ..self.names().clone() };
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
        let names = Names { schema, ..self.names().clone() };
        Ok(self.with_names(names))
    }

    /// The batches of another table are separate.
    fn with_names(self, names: Names) -> Self {
        let groups = Arc::new(Groups::new(self.groups.limits()));
        Self { table: Arc::new(self.table.with_names(names)), groups, ..self }
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
        Store::migrate(self).await
    }

    /// Verifies the server's settings, the version of the schema, the role's privileges, and that
    /// the connections for steps, batches, renewals and handlers have the same role and find the
    /// same table. It changes nothing.
    ///
    /// # Errors
    /// Fails with a permanent error whose source names what is missing and how to provide it, or
    /// with a transient error if the server cannot be reached.
    pub async fn check(&self) -> Result<(), StoreError> {
        Store::check(self).await
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Names { schema, table, .. } = self.names();
        let mut shown = f.debug_struct("PostgresStore");
        shown
            .field("schema", &schema.as_ref().map(SchemaName::as_str))
            .field("table", &table.as_str());
        shown.field("mode", &self.pools.server.mode).finish_non_exhaustive()
    }
}
