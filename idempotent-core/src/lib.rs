//! The engine behind [`idempotent-actix`]: it decides, once and atomically, whether a request runs, waits, is refused, or gets
//! the answer that was given before. It knows no HTTP and names no store.
//!
//! Data flows one way: [`Key`], [`Scope`] and [`Fingerprint`] go into a [`Claim`](protocol::Claim); a [`Store`] decides by the
//! rules of [`transition`]; the [`Runtime`] carries the attempt to its [`Recording`].
//!
//! [`idempotent-actix`]: https://docs.rs/idempotent-actix
#![cfg_attr(docsrs, feature(doc_cfg))]

// The tests here share files with those beside the crate, which call it by its name.
#[cfg(test)]
extern crate self as idempotent_core;

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod fingerprint;
mod key;
mod lease;
mod policy;
pub mod protocol;
mod record;
mod record_id;
mod recording;
pub mod runtime;
mod scope;
pub mod store;
mod sync;
pub mod transition;

pub use error::StoreError;
pub use fingerprint::{
    BodyForm, Digester, Fingerprint, FingerprintKeyError, FingerprintKeys, RequestDigest, canonical_json,
};
pub use key::{Key, KeyError};
pub use lease::{Lease, OwnerToken};
pub use policy::{Abandoned, Policy, RecordRule};
pub use record::{Record, RecordState};
pub use record_id::{DerivedKey, RecordId};
pub use recording::{EncodedRecording, RecordedBody, Recording, RecordingError};
pub use runtime::Runtime;
pub use scope::{Principal, ScopeId};
pub use store::Store;
