//! The options of a store, which are set before it is opened.

use std::num::{NonZeroU16, NonZeroUsize};

use sqlx::SqlitePool;

use crate::{
    connect,
    engine::{Engine, group::ALONE},
    error::NAME,
};
use idempotent_core::StoreError;
use idempotent_sql::{TableName, group_commit::GroupCommitLimits};

/// The options of a [`SqliteStore`](crate::SqliteStore). They are verified when the store is
/// opened.
///
/// # Examples
/// ```
/// # async fn open() -> Result<(), idempotent_core::StoreError> {
/// use idempotent_sqlite::SqliteStore;
///
/// let options = SqliteStore::options().table("payment_keys").group_commit(false);
/// let store = options.connect("sqlite:payments.db").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "options have no effect until a store is opened with them"]
pub struct SqliteOptions {
    table: String,
    limits: GroupCommitLimits,
}

impl SqliteOptions {
    pub(crate) fn new() -> Self {
        Self { table: TableName::DEFAULT.to_owned(), limits: GroupCommitLimits::new(ALONE) }
    }

    /// Sets the name of the table; the default is `idempotency_records`. A name is 1 to 48 ASCII
    /// letters, digits and underscores, and does not start with a digit.
    pub fn table(self, name: impl Into<String>) -> Self {
        Self { table: name.into(), ..self }
    }

    /// Sets whether concurrent claims of new keys and completions are executed in
    /// [batches]; the default is `true`.
    ///
    /// [batches]: https://docs.rs/idempotent-actix/latest/idempotent_actix/guide/sqlite/index.html#group-commit
    pub fn group_commit(self, enabled: bool) -> Self {
        let alone = if enabled { ALONE } else { usize::MAX };
        Self { limits: GroupCommitLimits { alone, ..self.limits }, ..self }
    }

    /// Sets the largest number of steps in a [batch](Self::group_commit); the default
    /// is 64.
    pub fn max_batch_steps(self, steps: NonZeroU16) -> Self {
        Self { limits: GroupCommitLimits { steps, ..self.limits }, ..self }
    }

    /// Sets about how many bytes a [batch](Self::group_commit) writes, unless a single
    /// step is larger; the default is 1 MiB.
    pub fn max_batch_bytes(self, bytes: NonZeroUsize) -> Self {
        Self { limits: GroupCommitLimits { bytes, ..self.limits }, ..self }
    }

    pub(crate) async fn open(self, url: &str) -> Result<Engine, StoreError> {
        let table = TableName::of_option(NAME, "table", &self.table)?;
        Ok(Engine::new(connect::open(url).await?, table, self.limits))
    }

    pub(crate) async fn share(self, pool: SqlitePool) -> Result<Engine, StoreError> {
        let table = TableName::of_option(NAME, "table", &self.table)?;
        Ok(Engine::new(connect::share(pool).await?, table, self.limits))
    }
}
