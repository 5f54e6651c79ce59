//! What the SQL stores of [`idempotent-actix`] share: pools, group commit, statements, the
//! decoding of rows, and migrations.
//!
//! Not for applications. No promise is made about its API: `idempotent-sqlite`,
//! `idempotent-postgres` and `idempotent-mysql` pin its version.
//!
//! [`idempotent-actix`]: https://docs.rs/idempotent-actix

mod error;
pub mod group_commit;
pub mod lists;
mod migrations;
mod pool;
mod row;
pub mod server;
pub mod statement;
pub mod steps;
mod table;
mod url;

pub use error::{ClaimContention, MissingTable, UnsafeSetting};
pub use migrations::{AppliedVersion, Migration, Migrations};
pub use pool::{
    ConnectionLifecycle, ConnectionPool, Lifetime, PooledConnection, in_runtime, open_as_pool,
};
pub use row::{
    TimedRecord, claimed_from_row, fence, id_from_row, lease_from_row, record_from_row, snapshot,
};
pub use table::{Dialect, LogFacts, TableFacts, TableName, audit_columns, columns};
pub use url::max_transactions;
