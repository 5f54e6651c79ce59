//! Renewal of the leases of this process's attempts.

use std::{error::Error, sync::Arc, time::Duration};

use tokio::{
    task::spawn_local,
    time::{Instant, timeout_at},
};

use self::live_leases::{RenewBatch, SHORTEST, pace};
use super::{
    observer::{FencedStep, RenewalOutcome},
    store_calls::StoreCalls,
};
use crate::{
    history::Kind,
    lease::Lease,
    protocol::{RenewOutcome, Renewal},
};

mod live_leases;

pub(super) use live_leases::{LiveLease, LiveLeases};

/// The minimum time limit of a renewal, however short its leases are.
const LEAST_LIMIT: Duration = Duration::from_secs(1);
/// Into how many calls a round is divided whose first call had no outcome.
const PARTS: usize = 32;

/// Renews the live leases of a runtime.
pub(super) struct Renewer {
    store: StoreCalls,
    pub(super) leases: Arc<LiveLeases>,
}

impl Renewer {
    pub(super) fn new(store: StoreCalls) -> Self {
        Self { store, leases: Arc::default() }
    }

    /// Renews the leases that are due, all in one call.
    ///
    /// If that call fails, or takes longer than a twelfth of the shortest lease, the same leases
    /// are sent again in parts, and the leases of the parts without an outcome in smaller parts. So
    /// a record that cannot be reached delays the other leases by at most a third of their length:
    /// three divisions isolate it among 30,000.
    ///
    /// A call without an outcome in that time is not canceled, since it may still have one. If no
    /// part has an outcome, the store fails as a whole, and the parts are not divided further.
    pub(super) async fn renew_due(self: &Arc<Self>) {
        let (together, isolated) = self.leases.take_due(self.store.environment().now());
        for batch in isolated {
            spawn_local(self.clone().renew(batch));
        }
        let mut parts = Vec::from_iter(together);
        for divided in [false, true, true, true] {
            let sent = parts.len();
            let failed = self.renew_all(parts).await;
            if failed.is_empty() || (divided && failed.len() == sent) {
                return;
            }
            let (single, rest): (Vec<_>, Vec<_>) =
                failed.into_iter().partition(|batch| batch.len() == 1);
            if divided {
                single.iter().for_each(|batch| self.leases.isolate(batch));
            }
            let each = PARTS.div_ceil(rest.len().max(1)).max(2);
            let split =
                |batch: &Arc<[Renewal]>| self.leases.split(batch, batch.len().div_ceil(each));
            parts = rest.iter().flat_map(split).collect();
        }
    }

    /// Makes these calls concurrently, and returns the batches without an outcome in time.
    async fn renew_all(self: &Arc<Self>, batches: Vec<RenewBatch>) -> Vec<Arc<[Renewal]>> {
        let shortest = batches.iter().map(|batch| shortest(&batch.renewals)).min();
        let limit = pace(shortest.unwrap_or_default(), 12).min(self.store.timeout());
        let deadline = Instant::now() + limit;
        // In a task each, so that a panic of the store costs one call and not all that follow.
        let spawn =
            |batch: RenewBatch| (batch.renewals.clone(), spawn_local(self.clone().renew(batch)));
        let calls: Vec<_> = batches.into_iter().map(spawn).collect();
        let mut failed = Vec::new();
        for (renewals, call) in calls {
            if !matches!(timeout_at(deadline, call).await, Ok(Ok(true))) {
                failed.push(renewals);
            }
        }
        failed
    }

    /// Renews a batch in one call; returns whether the store has responded.
    async fn renew(self: Arc<Self>, batch: RenewBatch) -> bool {
        let (sent, renewals) = (self.store.environment().now(), &batch.renewals);
        let call = self.store.store().renew(renewals);
        match self.store.limit_to("renew", self.limit(renewals), call).await {
            Ok(outcomes) => {
                self.leases.responded(renewals);
                self.observe(&outcomes);
                for (renewal, outcome) in renewals.iter().zip(outcomes) {
                    if self.apply(renewal, outcome, sent) == Applied::Lost {
                        self.store.observe(|observer| observer.fenced(FencedStep::Renewal));
                        let (store, id) = (self.store.clone(), renewal.lease.id);
                        spawn_local(
                            async move { store.append_history(&id, Kind::RenewalLost).await },
                        );
                    }
                }
                true
            }
            Err(error) => {
                let (cause, leases) = (error.source(), renewals.len());
                self.store.observe(|observer| observer.renewed(RenewalOutcome::Failed, leases));
                tracing::warn!(%error, cause, leases, "renewing leases failed; retrying");
                false
            }
        }
    }

    fn observe(&self, outcomes: &[RenewOutcome]) {
        self.store.observe(|observer| {
            for (outcome, observed) in [
                (RenewOutcome::Renewed, RenewalOutcome::Renewed),
                (RenewOutcome::Fenced, RenewalOutcome::Fenced),
                (RenewOutcome::Unknown, RenewalOutcome::Unknown),
            ] {
                let leases = outcomes.iter().filter(|each| **each == outcome).count();
                if leases > 0 {
                    observer.renewed(observed, leases);
                }
            }
        });
    }

    fn apply(&self, renewal: &Renewal, outcome: RenewOutcome, sent: std::time::Instant) -> Applied {
        match outcome {
            RenewOutcome::Renewed => self.leases.renewed(renewal, sent),
            RenewOutcome::Fenced => return self.drop_fenced(&renewal.lease),
            // The lease is due again after a sixth of its length.
            RenewOutcome::Unknown => {
                let id = renewal.lease.id;
                tracing::debug!(
                    id = %id.short(),
                    "the renewal of a lease had no outcome; retrying"
                );
            }
        }
        Applied::Kept
    }

    /// The time until the next renewal of the shortest lease, but long enough for a busy store.
    fn limit(&self, batch: &[Renewal]) -> Duration {
        (shortest(batch) / 6).max(LEAST_LIMIT).min(self.store.timeout())
    }

    fn drop_fenced(&self, lease: &Lease) -> Applied {
        // Between the choice of the lease and the outcome the attempt may end, or its response may
        // be stored unnoticed; neither is a loss.
        let is_lost = self.leases.remove(lease).is_some_and(|entry| !entry.is_ended());
        if !is_lost {
            return Applied::Kept;
        }
        tracing::warn!(
            id = %lease.id.short(),
            "the lease of an attempt was fenced: another attempt owns the record, or the store \
             lost it; the attempt runs on, and its response may be discarded"
        );
        Applied::Lost
    }
}

/// What the outcome of a renewal says of its lease.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Applied {
    /// The attempt still has it, or has ended.
    Kept,
    /// A running attempt has lost it.
    Lost,
}

fn shortest(batch: &[Renewal]) -> Duration {
    batch.iter().map(|renewal| renewal.extend).min().unwrap_or(SHORTEST)
}
