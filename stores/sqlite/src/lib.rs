//! The store in a SQLite file.

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
mod sql;
mod store;
mod transaction;

pub use self::{options::SqliteOptions, store::SqliteStore};
