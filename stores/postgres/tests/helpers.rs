//! Helpers that the tests share.

use std::time::Duration;

use idempotent_core::{Fingerprint, OwnerToken, RecordId, protocol::Claim};

pub(crate) use test_support::{
    servers::postgres::{database, number, sql},
    subjects::postgres::{store, store_with},
};

/// A URL with another parameter.
pub(crate) fn with(url: &str, parameter: &str) -> String {
    format!("{url}&{parameter}")
}

/// A unique key.
pub(crate) fn id() -> RecordId {
    let mut id = [0; 32];
    id[..16].copy_from_slice(OwnerToken::random().unwrap().as_bytes());
    RecordId::from_bytes(id)
}

pub(crate) fn request() -> Claim {
    Claim::new(Fingerprint::from_bytes([1; Fingerprint::BYTES]), OwnerToken::random().unwrap())
        .with_lease(Duration::from_secs(30))
        .with_ttl(Duration::from_secs(3600))
}
