//! The protocol of [`idempotent-actix`], without HTTP: idempotency keys, claims, recordings, and
//! the stores that make each step of the protocol atomic.
//!
//! For each request, the [`Runtime`] makes a [`Claim`](protocol::Claim) on a [`RecordId`], which is
//! computed from a [`Key`] and a [`ScopeId`]. A [`Store`] decides the claim by the rules of
//! [`transition`]. If the claim is granted, the request may run, and the runtime completes it with
//! a [recording](EncodedRecording) of its outcome, which later requests with the key get.
//!
//! Applications use [`idempotent-actix`]. Depend on this crate only to write a store, or an
//! integration with another framework.
//!
//! [`idempotent-actix`]: https://docs.rs/idempotent-actix
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod fingerprint;
pub mod history;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
pub mod job;
mod key;
#[cfg(feature = "encrypt")]
mod keyring;
mod lease;
mod policy;
pub mod protocol;
mod record;
mod record_id;
mod recording;
#[cfg(feature = "report")]
pub mod report;
pub mod runtime;
mod scope;
mod short_text;
pub mod store;
#[cfg_attr(any(test, feature = "internals"), path = "sync/interleaved.rs")]
mod sync;
pub mod transition;

pub use error::StoreError;
pub use fingerprint::{
    Digester, Fingerprint, FingerprintKeyError, FingerprintKeys, JsonPart, RequestDigest,
    canonical_json,
};
pub use history::History;
pub use key::{Key, KeyError};
#[cfg(feature = "encrypt")]
pub use keyring::{Keyring, KeyringError};
pub use lease::{Lease, OwnerToken};
pub use policy::{Abandoned, OnAbandon, Policy};
pub use record::{Notes, Record, RecordState};
pub use record_id::{DerivedKey, RecordId, RecordIdError, ShortRecordId};
pub use recording::{EncodedRecording, RecordingError};
pub use runtime::Runtime;
pub use scope::{Principal, ScopeId, ScopeTextError};
pub use short_text::{ShortText, ShortTextError};
pub use store::Store;
