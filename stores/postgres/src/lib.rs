//! The store in a Postgres database.

pub use self::{options::PostgresOptions, store::PostgresStore};

mod administration;
mod claim;
mod connect;
mod engine;
mod error;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod migrate;
mod options;
mod server;
mod sql;
mod store;
mod transaction;
