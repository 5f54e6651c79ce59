//! The store in Redis or Valkey.

mod administration;
mod claim;
mod connect;
mod encoding;
mod engine;
mod error;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod lua;
mod net;
mod notes;
mod options;
mod store;

pub use options::RedisOptions;
pub use store::RedisStore;
