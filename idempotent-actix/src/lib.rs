#![cfg_attr(feature = "sqlite", doc = include_str!("../README.md"))]
// The picture is a file of the repository, which the documentation does not have.
#![cfg_attr(doc, doc = "<style>picture { display: none; }</style>")]
#![cfg_attr(not(feature = "sqlite"), doc = "Idempotency keys for actix-web; see README.md.")]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
mod builder;
mod chunks;
mod completer;
mod declaration;
pub mod dialect;
pub mod fingerprint;
mod finish;
pub mod guide;
mod handle_of_request;
mod idempotency;
mod in_flight;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
pub mod job;
mod key_source;
mod lookup;
#[cfg(feature = "metrics")]
pub mod metrics;
mod not_run;
mod observation;
mod openapi;
mod operation;
mod operation_name;
mod outcome;
mod policy;
pub mod problem;
pub mod recording;
mod request;
mod resources;
mod run;
pub mod scope;
mod served;
mod settings;
mod shutdown;
mod specification;
pub mod store;
mod traces;
#[cfg(feature = "_tx")]
mod tx;
mod unsupported;

pub use idempotent_core::{DerivedKey, Key, KeyError, OnAbandon, RecordId, StoreError};
pub use idempotent_http::{
    header_names::EXPOSED_HEADERS,
    key::{KeyHeaderError, KeyRule, parse_key},
    recording::RecordRule,
};
pub use idempotent_macros::idempotent;

pub use builder::IdempotencyBuilder;
pub use completer::Completer;
pub use finish::FinishAfterDisconnect;
pub use idempotency::{AmbiguousNamespace, Idempotency};
pub use key_source::IntoKey;
pub use openapi::OpenApiReport;
pub use operation::{Operation, OperationError, Reconciliation, Step};
pub use outcome::{Disposition, RequestOutcome};
pub use settings::StoreFailurePolicy;
#[cfg(feature = "_tx")]
pub use tx::{Tx, TxError};
pub use unsupported::RejectUnsupportedKeys;
