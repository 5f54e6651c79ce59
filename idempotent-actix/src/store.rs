//! The supplied stores, and everything needed to write a store.
//!
//! Each supplied store has a Cargo feature: `memory`, `sqlite`, `postgres`, `mysql`, `redis` or
//! `dynamodb`. [`connect`] opens the store that a URL names.
//!
//! # Your own store
//! Implement [`Store`]. Also implement [`Transactions`] if applications can write to the store's
//! database. The module [`transition`] defines the steps that a store makes atomic, each as a pure
//! function. `examples/own-store` in the repository is a small store.
//!
//! The feature `conformance` adds the module `conformance`, a test suite that every store has to
//! pass:
#![cfg_attr(all(feature = "conformance", feature = "memory"), doc = "```no_run")]
#![cfg_attr(not(all(feature = "conformance", feature = "memory")), doc = "```ignore")]
//! use idempotent_actix::store::{MemoryStore as MyStore, conformance};
//!
//! # async fn my_store_conforms() {
//! // In a `#[tokio::test]`:
//! conformance::check(|| async { MyStore::new() }).await;
//! # }
//! ```

mod connect;

pub use connect::{ConnectError, connect};
#[cfg(feature = "conformance")]
pub use idempotent_core::conformance;
#[cfg(feature = "memory")]
pub use idempotent_core::store::memory::MemoryStore;
pub use idempotent_core::{
    Fingerprint, History, Lease, OwnerToken, Policy, Principal, Record, RecordState,
    clock::{Clock, ManualClock, SystemClock, Timestamp},
    history,
    protocol::{
        Actor, AuditAction, AuditEntry, AuditPage, Audited, AuditedState, Claim, ClaimOutcome,
        Contents, Fence, ListedRecord, ListedState, PagePosition, RecordCount, RecordFilter,
        RecordPage, Removal, RenewOutcome, Renewal, Replacement, Resolution, ResolveOutcome,
        Snapshot, StoreFacts,
    },
    runtime::{Administrator, ErasedPage, FoundRecord},
    store::{Administration, Store, Transaction, TransactionClaim, Transactions},
    transition,
};
#[cfg(feature = "encrypt")]
pub use idempotent_core::{Keyring, KeyringError, runtime::ResealedPage};
#[cfg(feature = "dynamodb")]
pub use idempotent_dynamodb::{DynamoDbOptions, DynamoDbStore};
#[cfg(feature = "mysql")]
pub use idempotent_mysql::{MySqlOptions, MySqlStore};
#[cfg(feature = "postgres")]
pub use idempotent_postgres::{PostgresOptions, PostgresStore};
#[cfg(feature = "redis")]
pub use idempotent_redis::{RedisOptions, RedisStore};
#[cfg(feature = "sqlite")]
pub use idempotent_sqlite::{SqliteOptions, SqliteStore};
