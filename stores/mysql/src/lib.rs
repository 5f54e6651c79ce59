//! The store in a MySQL or MariaDB database.

pub use self::{options::MySqlOptions, store::MySqlStore};

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
