//! The options of a store, which are set before it is opened.

use std::num::{NonZeroU16, NonZeroUsize};

use crate::{
    claim::batches::{ALONE, LIMITS},
    error::NAME,
    sql::names::Names,
};
use idempotent_core::StoreError;
use idempotent_sql::{TableName, group_commit::GroupCommitLimits};

/// How many handlers can have a transaction at the same time by default.
const MAX_TRANSACTIONS: NonZeroU16 = NonZeroU16::MIN.saturating_add(9);

/// The options of a [`PostgresStore`](crate::PostgresStore). They are verified when the store is
/// opened.
///
/// # Examples
/// ```no_run
/// # async fn open() -> Result<(), idempotent_core::StoreError> {
/// use idempotent_postgres::PostgresStore;
///
/// let options = PostgresStore::options().schema("payments").partitions(16);
/// let store = options.connect("postgres://app@db.internal/payments").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "options have no effect until a store is opened with them"]
pub struct PostgresOptions {
    table: String,
    schema: Option<String>,
    pub(crate) partitions: u16,
    max_transactions: Option<NonZeroU16>,
    pub(crate) limits: GroupCommitLimits,
}

impl PostgresOptions {
    pub(crate) fn new() -> Self {
        Self {
            table: TableName::DEFAULT.to_owned(),
            schema: None,
            partitions: 0,
            max_transactions: None,
            limits: LIMITS,
        }
    }

    /// Sets the name of the table; the default is `idempotency_records`. A name is 1 to 48 ASCII
    /// letters, digits and underscores, and does not start with a digit.
    pub fn table(self, name: impl Into<String>) -> Self {
        Self { table: name.into(), ..self }
    }

    /// Sets the schema of the table, whose name is like that of a [table](Self::table); the default
    /// is the first schema in the `search_path` that has the table, which is looked up once.
    /// [`migrate`](crate::PostgresStore::migrate) creates the schema if it does not exist.
    pub fn schema(self, name: impl Into<String>) -> Self {
        Self { schema: Some(name.into()), ..self }
    }

    /// Sets the number of hash partitions that [`migrate`](crate::PostgresStore::migrate) creates
    /// for a new table; the default is 0, which does not partition the table. With many millions of
    /// records, 16 to 64 partitions keep indexes small and vacuums short. An existing table is left
    /// unchanged.
    pub fn partitions(self, parts: u16) -> Self {
        Self { partitions: parts, ..self }
    }

    /// Sets how many handlers can have a transaction at the same time; the default is 10, or
    /// `max_transactions` in the URL. Any other handler waits for a connection, for up to
    /// 5 seconds, before its transaction begins. A replay waits for one for 50 ms at most.
    ///
    /// The server must accept this number of sessions from each process. The option has no effect
    /// on a [shared](Self::from_pool) pool, whose `max_connections` applies.
    pub fn max_transactions(self, max_size: NonZeroU16) -> Self {
        Self { max_transactions: Some(max_size), ..self }
    }

    /// Sets whether concurrent claims and completions are executed in [batches]; the default is
    /// `true`.
    ///
    /// [batches]: https://docs.rs/idempotent-actix/latest/idempotent_actix/guide/postgres/index.html#group-commit
    pub fn group_commit(self, enabled: bool) -> Self {
        let alone = if enabled { ALONE } else { usize::MAX };
        Self { limits: GroupCommitLimits { alone, ..self.limits }, ..self }
    }

    /// Sets the largest number of steps in a [batch](Self::group_commit); the default is 64.
    pub fn max_batch_steps(self, steps: NonZeroU16) -> Self {
        Self { limits: GroupCommitLimits { steps, ..self.limits }, ..self }
    }

    /// Sets about how many bytes a [batch](Self::group_commit) sends, unless a single step is
    /// larger, and how many bytes of recordings it returns; the default is 1 MiB. The process and
    /// the server each have a whole batch in memory.
    pub fn max_batch_bytes(self, bytes: NonZeroUsize) -> Self {
        Self { limits: GroupCommitLimits { bytes, ..self.limits }, ..self }
    }

    /// How many handlers can have a transaction, if the URL requests `in_url`.
    pub(crate) fn transactions(&self, in_url: Option<NonZeroU16>) -> NonZeroU16 {
        self.max_transactions.or(in_url).unwrap_or(MAX_TRANSACTIONS)
    }

    /// The names of the table and its schema.
    pub(crate) fn names(&self) -> Result<Names, StoreError> {
        let name = |option, name| TableName::of_option(NAME, option, name);
        let table = name("table", &self.table)?;
        let schema = self.schema.as_deref().map(|schema| name("schema", schema)).transpose()?;
        Ok(Names { schema: schema.map(Into::into), table, bounded: false })
    }
}
