//! The engine of [`idempotent-actix`]: idempotency keys, claims, recordings, and the stores that
//! make them atomic. It has no dependency on HTTP.
//!
//! A [`Key`], a [`ScopeId`] and a [`Fingerprint`] make a [`Claim`](protocol::Claim). A [`Store`]
//! decides it by the rules of [`transition`]. The [`Runtime`] carries the granted attempt to its
//! [`Recording`].
//!
//! Applications use [`idempotent-actix`]. Depend on this crate to write a store, or an integration
//! with another framework.
//!
//! [`idempotent-actix`]: https://docs.rs/idempotent-actix
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod fingerprint;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
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
    BodyForm, Digester, Fingerprint, FingerprintKeyError, FingerprintKeys, RequestDigest,
    canonical_json,
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
