//! The options of a store, which are set before it is opened.

use std::num::{NonZeroU16, NonZeroUsize};

use crate::{
    claim::batches::{ALONE, LIMITS},
    error::NAME,
};
use idempotent_core::StoreError;
use idempotent_sql::{TableName, group_commit::GroupCommitLimits};

/// How many handlers can have a transaction at the same time by default.
const MAX_TRANSACTIONS: NonZeroU16 = NonZeroU16::MIN.saturating_add(9);

/// The options of a [`MySqlStore`](crate::MySqlStore). They are verified when the store is opened.
///
/// # Examples
/// ```no_run
/// # async fn open() -> Result<(), idempotent_core::StoreError> {
/// use idempotent_mysql::MySqlStore;
///
/// let options = MySqlStore::options().table("payment_keys");
/// let store = options.connect("mysql://app@db.internal/payments").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "options have no effect until a store is opened with them"]
pub struct MySqlOptions {
    table: String,
    max_transactions: Option<NonZeroU16>,
    pub(crate) limits: GroupCommitLimits,
}

impl MySqlOptions {
    pub(crate) fn new() -> Self {
        Self { table: TableName::DEFAULT.to_owned(), max_transactions: None, limits: LIMITS }
    }

    /// Sets the name of the table; the default is `idempotency_records`. A name is 1 to 48 ASCII
    /// letters, digits and underscores, and does not start with a digit.
    pub fn table(self, name: impl Into<String>) -> Self {
        Self { table: name.into(), ..self }
    }

    /// Sets how many handlers can have a transaction at the same time; the default is 10,
    /// `max_transactions` in the URL, or the `max_connections` of a pool. Any other handler waits
    /// for a connection, for up to 5 seconds, before its transaction begins. A replay waits for
    /// none.
    ///
    /// The server must accept this number of sessions from each process, and 16 more, beside
    /// short-lived ones that open the store, probe the server, or end sessions.
    pub fn max_transactions(self, max_size: NonZeroU16) -> Self {
        Self { max_transactions: Some(max_size), ..self }
    }

    /// Sets whether concurrent claims and completions are executed in [batches]; the default is
    /// `true`.
    ///
    /// [batches]: https://docs.rs/idempotent-actix/latest/idempotent_actix/guide/mysql/index.html#group-commit
    pub fn group_commit(self, enabled: bool) -> Self {
        let alone = if enabled { ALONE } else { usize::MAX };
        Self { limits: GroupCommitLimits { alone, ..self.limits }, ..self }
    }

    /// Sets the largest number of steps in a [batch](Self::group_commit); the default is 64.
    pub fn max_batch_steps(self, steps: NonZeroU16) -> Self {
        Self { limits: GroupCommitLimits { steps, ..self.limits }, ..self }
    }

    /// Sets about how many bytes a [batch](Self::group_commit) sends, unless a single step is
    /// larger; the default is 1 MiB. The process and the server each have a whole batch in memory.
    pub fn max_batch_bytes(self, bytes: NonZeroUsize) -> Self {
        Self { limits: GroupCommitLimits { bytes, ..self.limits }, ..self }
    }

    /// How many handlers can have a transaction, if the URL or the pool requests `requested`.
    pub(crate) fn transactions(&self, requested: Option<NonZeroU16>) -> NonZeroU16 {
        self.max_transactions.or(requested).unwrap_or(MAX_TRANSACTIONS)
    }

    /// The name of the table.
    pub(crate) fn table_name(&self) -> Result<TableName, StoreError> {
        TableName::of_option(NAME, "table", &self.table)
    }
}
