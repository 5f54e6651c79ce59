#![cfg_attr(feature = "sqlite", doc = include_str!("../README.md"))]
#![cfg_attr(not(feature = "sqlite"), doc = "Idempotency keys for actix-web; see README.md.")]

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
mod account;
mod builder;
pub mod fingerprint;
mod finish;
mod idempotency;
mod in_flight;
mod operation;
mod outcome;
pub mod problem;
mod recording;
mod request;
mod run;
pub mod scope;
mod specification;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod transaction;
mod unsupported;

use __private as private;

pub use idempotent_core::{
    Abandoned, DerivedKey, FingerprintKeyError, FingerprintKeys, Key, KeyError, Record, RecordId, RecordRule,
    RecordState, RecordedBody, Recording, ScopeId, StoreError,
};
pub use idempotent_macros::idempotent;

pub use builder::{IdempotencyBuilder, KeyRule, StoreFailurePolicy};
pub use finish::{FinishAfterDisconnect, FinishAfterDisconnectResponse, FinishAfterDisconnectService};
pub use idempotency::{AmbiguousNamespace, Idempotency};
pub use operation::Operation;
pub use outcome::{Disposition, Replayable, RequestOutcome, WithDisposition};
pub use problem::{EXPOSED_HEADERS, Problem};
pub use scope::{IntoScopeKey, ScopeKey, ScopeValue};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use transaction::Tx;
pub use unsupported::{RejectUnsupportedKeys, RejectUnsupportedKeysService};

/// Where records live. Each store has a feature of its own.
pub mod store {
    #[cfg(feature = "memory")]
    pub use idempotent_core::store::memory::MemoryStore;
    #[cfg(feature = "postgres")]
    pub use idempotent_core::store::postgres::PostgresStore;
    #[cfg(feature = "redis")]
    pub use idempotent_core::store::redis::RedisStore;
    #[cfg(feature = "sqlite")]
    pub use idempotent_core::store::sqlite::SqliteStore;
    pub use idempotent_core::{protocol::*, store::*};
}
