//! From a claim to its answer.
//!
//! The runtime is the only caller of a [`Store`]. It claims, waits for others, keeps the leases of running attempts alive, brings
//! the answer to the store, and removes what is past its ttl.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::sync::OnceCell;

use self::patience::twice;
use crate::{
    error::StoreError,
    fingerprint::{FingerprintKeys, RequestDigest},
    lease::{Lease, OwnerToken},
    policy::Policy,
    protocol::{Claim, ClaimOutcome, Resolution, ResolveOutcome, Snapshot},
    record_id::RecordId,
    recording::Recording,
    store::Store,
};

mod attempt;
mod background;
mod claiming;
mod deferred;
mod patience;
mod process;
mod renewal;
mod waiting;
mod within;

pub use attempt::{Attempt, AttemptOutcome};

/// Claims keys, and carries attempts to their recordings. Clones share one state; a process needs one for each store, made after any fork.
///
/// It starts one thread of its own at the first claim, which renews leases, purges, and tells the store again what it failed to take,
/// so that neither a busy nor a stopped tokio runtime of the application holds it up. The thread calls the store from a tokio runtime
/// of its own: a store on a pool of sockets, each of which belongs to the tokio runtime that opened it, keeps some that are opened and
/// used there only. The thread ends with the last clone and the last attempt, and when no end of an attempt is left to be told.
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<Shared>,
}

/// What can be set for a [`Runtime`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuntimeOptions {
    /// Tells applications that share a store apart: it is part of each record id. `None`, the default, leaves it to the store's
    /// URL. Another namespace is another set of records, so a change has the effect of an empty store.
    pub namespace: Option<String>,
    /// Secrets that sign fingerprints. None by default.
    pub fingerprint_keys: FingerprintKeys,
    /// How often expired records are purged, on average; `None` leaves it to somebody else. Every 60 s by default.
    pub purge_every: Option<Duration>,
    /// How many duplicates of one key may wait at once; more are told at once that it is in flight. 16 by default.
    pub waiters_per_key: usize,
    /// How long one call to the store may take; after that its outcome counts as unknown. 10 s by default.
    pub store_timeout: Duration,
    /// How many bytes the ends of attempts may take in memory that the store has not taken yet: recordings with their headers, and
    /// 1 KiB for each end. Beyond that a recording is kept without its body, as one of a response over the limit is; where not even
    /// status and headers fit, the end is dropped, an error is logged with the record's id, and the lease expires, so that the
    /// operation may run again. 64 MiB by default.
    pub deferred_bytes: usize,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            namespace: None,
            fingerprint_keys: FingerprintKeys::none(),
            purge_every: Some(Duration::from_secs(60)),
            waiters_per_key: 16,
            store_timeout: Duration::from_secs(10),
            deferred_bytes: 64 << 20,
        }
    }
}

struct Shared {
    store: Arc<dyn Store>,
    options: RuntimeOptions,
    renewal: Arc<renewal::Live>,
    waiting: waiting::Waiting,
    within: within::Within,
    /// Ends of attempts, and claims to be given back, that the store has not taken yet.
    deferrals: deferred::Deferrals,
    background: background::Background,
    /// Set once the store has passed its check.
    checked: OnceCell<()>,
}

/// What a request comes to before any work is done.
#[derive(Debug)]
pub enum Admission {
    /// The key is ours: run, then end the attempt.
    Proceed(Attempt),
    /// Nothing runs.
    Rejected(Verdict),
}

/// Why nothing runs, or why an attempt's own answer does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The operation was done, and this was its answer.
    Completed(Recording),
    /// Another attempt is at work.
    InFlight {
        /// How long its lease lasts yet.
        lease_left: Duration,
    },
    /// An attempt was abandoned, and its outcome is unknown until it is resolved.
    Held {
        /// Whether this claim found its lease expired, and the key is held from now on.
        newly: bool,
    },
    /// The key belongs to another request.
    Mismatch,
    /// The operation was done, but its recording cannot be read. It is never run again.
    Unreadable,
}

impl Runtime {
    /// A runtime over a store.
    pub fn new(store: impl Store, options: RuntimeOptions) -> Self {
        Self::shared(Arc::new(store), options)
    }

    /// A runtime over a store that is shared already.
    #[must_use]
    pub fn shared(store: Arc<dyn Store>, options: RuntimeOptions) -> Self {
        let waiting = waiting::Waiting::new(options.waiters_per_key);
        let shared = Shared {
            store,
            options,
            renewal: Arc::default(),
            waiting,
            within: within::Within::default(),
            deferrals: deferred::Deferrals::default(),
            background: background::Background::default(),
            checked: OnceCell::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Claims a key; waits up to `policy.wait` while another attempt is in flight.
    ///
    /// A completion of this key that the store has not taken yet is brought to it first, and its recording is the verdict. While the
    /// store still fails, that recording is replayed from memory: the first client has the same response already. An abandonment that the
    /// store has not taken yet holds the key in the same way, where the policy is to hold it. A record that the
    /// store has lost in the meantime is claimed again under the same owner token, and completed.
    ///
    /// # Errors
    /// When the store fails twice, or slowly, or for good. Whether the claim took effect is then unknown; if it did, it is given back
    /// in the background, and at worst it lapses with its lease. Under [`Abandoned::Hold`](crate::Abandoned::Hold) a claim that could
    /// not be given back in that time is held, though nothing ran.
    ///
    /// # Cancel safety
    /// A future that is dropped gives back, in the background, what it may have claimed. A store that still acts on it after that keeps
    /// the key for the lease.
    pub async fn begin(&self, id: RecordId, digest: RequestDigest, policy: &Policy) -> Result<Admission, StoreError> {
        let shared = &self.shared;
        shared.ready().await?;
        let claim = Claim {
            fingerprint: shared.options.fingerprint_keys.sign(digest),
            owner: claiming::draw()?,
            lease: policy.lease,
            ttl: policy.ttl,
            abandoned: policy.abandoned,
            principal: digest.principal(),
        };
        let mut asked = shared.claim(&id, &claim, digest).await?;
        if matches!(asked.outcome, ClaimOutcome::InFlight { .. }) {
            asked = Box::pin(shared.wait(&id, &claim, digest, policy.wait, asked)).await;
        }
        Ok(match asked.outcome {
            ClaimOutcome::Granted { attempt } => {
                let lease = Lease { id, owner: asked.owner };
                if attempt > 1 {
                    shared.renewal.supersede(&lease);
                }
                shared.renewal.insert(lease, policy.lease, asked.sent);
                let claim = Claim { owner: asked.owner, ..claim };
                Admission::Proceed(Attempt::new(shared.clone(), lease, claim, digest, attempt, asked.sent))
            }
            outcome @ (ClaimOutcome::Completed(_)
            | ClaimOutcome::InFlight { .. }
            | ClaimOutcome::Held { .. }
            | ClaimOutcome::Mismatch { .. }) => Admission::Rejected(Verdict::of_claim(&id, outcome)),
        })
    }

    /// The verdict on a request that is not to run, without claiming its key: `None` where it could run.
    ///
    /// # Errors
    /// When the store fails.
    ///
    /// # Cancel safety
    /// Safe: nothing is written, but for an end of an attempt that the store has not taken yet.
    pub async fn find(&self, id: RecordId, digest: RequestDigest) -> Result<Option<Verdict>, StoreError> {
        let shared = &self.shared;
        if !shared.deferrals.is_empty()
            && let Some(outcome) = Box::pin(shared.claim_deferred(&id, digest)).await
        {
            return Ok(Some(Verdict::of_claim(&id, outcome)));
        }
        let found = twice(|| shared.answer(shared.store.look_up(&id))).await?;
        if let Some(verdict) = found.and_then(|found| shared.judge(&id, digest, &found)) {
            return Ok(Some(verdict));
        }
        // What runs within a transaction has no record yet.
        Ok(shared.within.running(&id).map(|running| {
            let same = shared.is_same(running, digest);
            if same { Verdict::InFlight { lease_left: Duration::ZERO } } else { Verdict::Mismatch }
        }))
    }

    /// The namespace that was set: by the options, or else by the store's URL.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.shared.options.namespace.as_deref().or_else(|| self.shared.store.namespace())
    }

    /// Verifies that the store can do its work, before any request does: see [`Store::check`]. The first claim does so too, if
    /// nothing has before.
    ///
    /// # Errors
    /// When the store is misconfigured or cannot be reached. The error's source names the setting or the privilege.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.shared.check().await
    }

    /// Reads a record without changing it; `None` when the key is absent.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.shared.answer(self.shared.store.look_up(id)).await
    }

    /// Ends a held key as an operator says, if it is still the attempt that the operator saw.
    ///
    /// # Errors
    /// When the store fails. The same call may be sent again.
    pub async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
    ) -> Result<ResolveOutcome, StoreError> {
        let outcome = self.shared.answer(self.shared.store.resolve(id, seen, resolution)).await?;
        self.shared.waiting.wake(id);
        Ok(outcome)
    }

    /// Returns when no end of an attempt is left to be told in the background. Part of an orderly shutdown.
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn settled(&self) {
        self.shared.deferrals.settled().await;
    }
}

impl Shared {
    /// Returns once claims may be made: the background thread runs, and the store has passed its check.
    fn ready(self: &Arc<Self>) -> impl Future<Output = Result<(), StoreError>> {
        let started = background::start(self);
        let checked = self.checked.initialized();
        async move {
            started?;
            // Boxed: keeps the caller's future small, since all but the first claim find the store checked.
            if checked { Ok(()) } else { Box::pin(self.check()).await }
        }
    }

    async fn check(&self) -> Result<(), StoreError> {
        // Bounded as a whole: each claim that waits for a check that fails makes the check again, after all the claims before it.
        let checked = self.checked.get_or_try_init(|| twice(|| self.answer(self.store.check())));
        self.answer(Box::pin(checked)).await.copied()
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

impl Verdict {
    /// What a claim that was not granted comes to.
    fn of_claim(id: &RecordId, outcome: ClaimOutcome) -> Self {
        match outcome {
            ClaimOutcome::Completed(recording) => Self::of(id, &recording),
            ClaimOutcome::InFlight { lease_left } => Self::InFlight { lease_left },
            ClaimOutcome::Held { newly } => {
                if newly {
                    tracing::warn!(%id, "the lease of an operation expired and its outcome is unknown; its key is held until it is resolved");
                }
                Self::Held { newly }
            }
            ClaimOutcome::Mismatch { .. } => Self::Mismatch,
            // Not asked for; told to come again.
            ClaimOutcome::Granted { .. } => Self::InFlight { lease_left: Duration::ZERO },
        }
    }

    /// What a fenced-off attempt's client gets where its successor's record could not be read.
    fn of_unread(error: &StoreError) -> Self {
        if error.is_unreadable() { Self::Unreadable } else { Self::InFlight { lease_left: Duration::ZERO } }
    }

    fn of(id: &RecordId, recording: &Bytes) -> Self {
        match Recording::decode(recording) {
            Ok(recording) => Self::Completed(recording),
            Err(error) => {
                tracing::error!(%id, %error, "a recording cannot be read; its key stays as it is");
                Self::Unreadable
            }
        }
    }
}

#[cfg(test)]
mod tests;
