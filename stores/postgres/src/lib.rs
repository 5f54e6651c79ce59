//! The store in a Postgres database.

pub use self::store::PostgresStore;
pub use idempotent_sql::InvalidTableName;

mod claim;
mod connect;
mod engine;
mod error;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod migrate;
mod server;
mod sql;
mod store;
mod transaction;
