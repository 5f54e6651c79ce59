//! Faults of the machine and of the operator: a full disk, a clock that is set, releases with
//! different settings on one store, records that no purge removes, and ends that take longer than
//! their lease.

use idempotent_core::{
    Policy, RecordId, Runtime,
    runtime::{Admission, Attempt, Verdict},
};
use test_support::cuts::digest;

mod clocks;
mod disk_full;
mod mixed_releases;
mod purging;
mod slow_ends;

/// Claims a key, and expects the attempt to be granted.
async fn proceed(runtime: &Runtime, id: RecordId, policy: &Policy) -> Attempt {
    match runtime.begin(id, digest(), policy).await.unwrap() {
        Admission::Proceed(attempt) => attempt,
        Admission::Rejected(verdict) => panic!("the claim was rejected: {verdict:?}"),
    }
}

/// Claims a key, and expects the attempt to be rejected.
async fn rejected(runtime: &Runtime, id: RecordId, policy: &Policy) -> Verdict {
    match runtime.begin(id, digest(), policy).await.unwrap() {
        Admission::Rejected(verdict) => verdict,
        Admission::Proceed(attempt) => panic!("attempt {} runs", attempt.number()),
    }
}
