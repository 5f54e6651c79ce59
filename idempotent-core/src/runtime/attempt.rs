//! A claim that was granted, until it is ended.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    error::StoreError,
    fingerprint::RequestDigest,
    lease::Lease,
    policy::Abandoned,
    record::RecordId,
    recording::Recording,
    runtime::{Shared, Verdict, background::Step, patience::now},
    store::Fence,
};

/// The right to run an operation once. Its lease is renewed until it is ended.
///
/// An attempt that is dropped without an end is abandoned the hard way: nobody knows what it did, so its lease runs out as if the
/// process had died.
pub struct Attempt {
    shared: Arc<Shared>,
    lease: Lease,
    extend: Duration,
    digest: RequestDigest,
    number: u32,
    ended: bool,
}

/// What the end of an attempt came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The store has it.
    Stored,
    /// The store failed. The attempt's answer counts, and the store is told again in the background for as long as the lease may last.
    Deferred,
    /// Someone else had taken over. The attempt's answer must not reach its client; this is what the client is told.
    Fenced(Verdict),
}

impl Attempt {
    /// The lease is kept alive already.
    pub(super) fn new(shared: Arc<Shared>, lease: Lease, extend: Duration, digest: RequestDigest, number: u32) -> Self {
        Self { shared, lease, extend, digest, number, ended: false }
    }

    /// The record that is claimed.
    #[must_use]
    pub fn id(&self) -> &RecordId {
        &self.lease.id
    }

    /// 1 for the first attempt; from 2 on, an earlier one was abandoned.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Ends with an answer that is kept.
    ///
    /// # Cancel safety
    /// If it is dropped, the answer may or may not have been kept; then the lease runs out.
    pub async fn complete(self, recording: &Recording) -> Ending {
        self.end(Step::Complete(recording.encode())).await
    }

    /// Ends without a trace: nothing was done, the next request runs as the first.
    ///
    /// # Cancel safety
    /// As [`complete`](Self::complete).
    pub async fn release(self) -> Ending {
        self.end(Step::Release).await
    }

    /// Ends without an outcome: the next request takes over at once, or the key is held.
    ///
    /// # Cancel safety
    /// As [`complete`](Self::complete).
    pub async fn abandon(self, policy: Abandoned) -> Ending {
        self.end(Step::Abandon(policy)).await
    }

    async fn end(mut self, step: Step) -> Ending {
        self.ended = true;
        // A renewal that meets the completion in the store would only wait for it.
        self.shared.renewal.remove(&self.lease);
        match step.take(&*self.shared.store, &self.lease).await {
            Ok(Fence::Passed) => {
                self.shared.waiting.wake(&self.lease.id);
                Ending::Stored
            }
            Ok(Fence::Fenced) => {
                tracing::warn!(id = %self.lease.id, "an attempt lost its key to another; its answer is not sent");
                Ending::Fenced(self.shared.successor(&self.lease.id, self.digest).await)
            }
            Err(error) => {
                self.log(&error);
                self.shared.renewal.insert(self.lease, self.extend, now());
                self.shared.defer(self.lease, self.extend, step);
                Ending::Deferred
            }
        }
    }

    fn log(&self, error: &StoreError) {
        let cause = std::error::Error::source(error);
        tracing::warn!(id = %self.lease.id, %error, cause, "an attempt's end is told again in the background");
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.renewal.remove(&self.lease);
        }
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("id", self.id()).field("number", &self.number).finish_non_exhaustive()
    }
}
