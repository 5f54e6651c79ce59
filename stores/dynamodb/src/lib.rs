//! The store in DynamoDB.

mod address;
mod administration;
mod connect;
mod engine;
mod error;
mod guards;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod item;
mod options;
mod schema;
mod service_time;
mod steps;
mod store;
mod table;

pub use options::DynamoDbOptions;
pub use store::DynamoDbStore;
