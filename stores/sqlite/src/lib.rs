//! The store in a SQLite file.

mod claim;
mod connect;
mod engine;
mod error;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod migrate;
mod sql;
mod store;
mod transaction;

pub use self::store::SqliteStore;
pub use idempotent_sql::InvalidTableName;
