#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

mod clock;
mod error;
pub mod guide;
mod key;
mod lookup;
mod marker;
mod middleware;
mod operation;
mod pending;
mod received;
mod request;
mod resume;
mod retries;
mod settings;
mod specification;
mod verdict;

#[cfg(feature = "sqlite")]
pub use self::pending::SqlitePending;
pub use self::{
    error::{Error, ErrorKind, Outcome},
    key::{InvalidKey, Key},
    lookup::{Known, Lookup, LookupError, Progress},
    middleware::Idempotency,
    pending::{PendingOperation, PendingStore, StoredRequest},
    request::{IdempotentRequest, IdempotentRequestBuilder},
    resume::{Resume, Resumed},
    specification::Specification,
};
