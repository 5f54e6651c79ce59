//! The settings of a release. Processes of several releases share one store.

use std::time::Duration;

use idempotent_actix::{IdempotencyBuilder, OnAbandon, fingerprint::FingerprintKeys};

use crate::world::{chance, one_of};

#[derive(Clone, Debug)]
pub(crate) struct Release {
    lease: u64,
    ttl: u64,
    wait: u64,
    timeout: Option<u64>,
    pub(crate) abandoned: OnAbandon,
    store_timeout: u64,
    purge_every: Option<u64>,
    /// Whether fingerprints are signed with the newer key.
    rotated: bool,
    /// Whether `FinishAfterDisconnect` is used.
    pub(crate) finishes: bool,
    /// How many of 100 calls to the store fail.
    pub(crate) faults: u32,
    /// How many claims and completions are sent side by side before others are sent in batches;
    /// `None` if there are no batches.
    pub(crate) side_by_side: Option<usize>,
    /// Whether first claims are completed as in Redis, by comparing the value of the claim.
    pub(crate) compares_claims: bool,
}

/// The longest lease of any release.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(30);
/// The longest ttl of any release.
pub(crate) const LONGEST_TTL: Duration = Duration::from_secs(24 * 60 * 60);

impl Release {
    pub(crate) fn random(faults: u32) -> Self {
        Self {
            lease: one_of(&[1, 2, 5, 10, 30]),
            ttl: one_of(&[5 * 60, 60 * 60, 24 * 60 * 60]),
            wait: one_of(&[0, 0, 1, 5]),
            timeout: chance(30).then(|| one_of(&[2, 10])),
            abandoned: if chance(30) { OnAbandon::Hold } else { OnAbandon::Retry },
            store_timeout: one_of(&[1, 3, 10]),
            purge_every: one_of(&[None, Some(1), Some(20)]),
            rotated: chance(50),
            finishes: chance(30),
            faults,
            side_by_side: one_of(&[None, Some(0), Some(1)]),
            compares_claims: chance(50),
        }
    }

    pub(crate) fn configure(&self, builder: IdempotencyBuilder) -> IdempotencyBuilder {
        let seconds = Duration::from_secs;
        // Both secrets are known to all releases, so that each reads the records of the others.
        let secrets = if self.rotated { [2, 1] } else { [1, 2] };
        let keys = secrets.into_iter().try_fold(FingerprintKeys::none(), |keys, id| {
            keys.with(id, &[u8::try_from(id).unwrap_or(0); 32])
        });
        let builder = builder
            .lease(seconds(self.lease))
            .ttl(seconds(self.ttl))
            .wait(seconds(self.wait))
            .abandoned(self.abandoned)
            .store_timeout(seconds(self.store_timeout))
            .purge_every(self.purge_every.map(seconds))
            .fingerprint_keys(keys.expect("two secrets"));
        match self.timeout {
            Some(timeout) => builder.timeout(seconds(timeout)),
            None => builder,
        }
    }
}
