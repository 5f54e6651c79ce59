#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

mod clock;
mod error;
pub mod guide;
mod idempotency;
mod key;
mod lookup;
mod marker;
mod middleware;
mod operation;
mod pending;
mod proof;
mod received;
mod redirects;
mod request;
mod resume;
mod retries;
mod settings;
mod specification;
mod verdict;

pub use idempotent_http::{Key, KeyError};

#[cfg(feature = "sqlite")]
pub use self::pending::SqlitePending;
pub use self::{
    error::{Error, ErrorKind, Outcome},
    idempotency::ClientIdempotency,
    lookup::{Known, Lookup, LookupError, Progress},
    middleware::IdempotencyMiddleware,
    pending::{PendingOperation, PendingState, PendingStore, StoredRequest},
    redirects::redirect_policy,
    request::{IdempotentRequest, IdempotentRequestBuilder},
    resume::{Resume, Resumed},
    specification::Specification,
};
