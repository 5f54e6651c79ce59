//! Rounds of renewals, and how a record that cannot be reached is parted from its neighbours.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::spawn_local,
    time::{Instant, timeout_at},
};

use super::{Chosen, SHORTEST, pace};
use crate::{
    lease::Lease,
    protocol::{RenewOutcome, Renewal},
    runtime::{
        Shared,
        patience::{in_time, now},
    },
};

/// The least time that a renewal is waited for, however short the leases in it are.
const LEAST_LIMIT: Duration = Duration::from_secs(1);
/// Into how many calls a round is divided whose first call had no outcome.
const PARTS: usize = 32;

impl Shared {
    /// Renews what is due, all in one call. If that fails, or takes longer than a twelfth of the shortest lease, the same leases are
    /// sent again in parts, and those of the parts without an outcome in smaller ones. So a record that cannot be reached costs its
    /// neighbours a third of their leases at most: three divisions leave it alone among 30,000.
    ///
    /// A call that has no outcome in that time is not given up: it may yet have one. A store of which no part has an outcome fails as
    /// a whole, and is not sent smaller ones.
    pub(in crate::runtime) async fn renew_due(self: &Arc<Self>) {
        let (together, alone) = self.renewal.due(now());
        for chosen in alone {
            spawn_local(self.clone().renew(chosen));
        }
        let mut parts = Vec::from_iter(together);
        for divided in [false, true, true, true] {
            let sent = parts.len();
            let failed = self.renew_all(parts).await;
            if failed.is_empty() || (divided && failed.len() == sent) {
                return;
            }
            let (single, rest): (Vec<_>, Vec<_>) = failed.into_iter().partition(|batch| batch.len() == 1);
            if divided {
                single.iter().for_each(|batch| self.renewal.part(batch));
            }
            let each = PARTS.div_ceil(rest.len().max(1)).max(2);
            parts = rest.iter().flat_map(|batch| self.renewal.parts(batch, batch.len().div_ceil(each))).collect();
        }
    }

    /// Makes these calls at once; returns those that have no outcome in good time.
    async fn renew_all(self: &Arc<Self>, calls: Vec<Chosen>) -> Vec<Arc<[Renewal]>> {
        let shortest = calls.iter().map(|chosen| shortest(&chosen.batch)).min().unwrap_or_default();
        let deadline = Instant::now() + pace(shortest, 12).min(self.options.store_timeout);
        // In tasks of their own, so that a store that panics costs this call and not all that follow.
        let spawn = |chosen: Chosen| (chosen.batch.clone(), spawn_local(self.clone().renew(chosen)));
        let calls: Vec<_> = calls.into_iter().map(spawn).collect();
        let mut failed = Vec::new();
        for (batch, call) in calls {
            if !matches!(timeout_at(deadline, call).await, Ok(Ok(true))) {
                failed.push(batch);
            }
        }
        failed
    }

    /// Renews some leases in one call; returns whether the store has responded.
    async fn renew(self: Arc<Self>, chosen: Chosen) -> bool {
        let (sent, batch) = (now(), &chosen.batch);
        match in_time(self.renewal_limit(batch), self.store.renew(batch)).await {
            Ok(outcomes) => {
                self.renewal.responded(batch);
                for (renewal, outcome) in batch.iter().zip(outcomes) {
                    match outcome {
                        RenewOutcome::Renewed => self.renewal.renewed(renewal, sent),
                        RenewOutcome::Fenced => self.lost(&renewal.lease),
                        // It is due again after a sixth of its length.
                        RenewOutcome::Unknown => {
                            tracing::debug!(id = %renewal.lease.id, "renewing a lease had no outcome; retrying");
                        }
                    }
                }
                true
            }
            Err(error) => {
                let cause = std::error::Error::source(&error);
                tracing::warn!(%error, cause, leases = batch.len(), "renewing leases failed; retrying");
                false
            }
        }
    }

    /// As long as until the next renewal of the shortest lease, but not so short that a busy store is never heard.
    fn renewal_limit(&self, batch: &[Renewal]) -> Duration {
        (shortest(batch) / 6).max(LEAST_LIMIT).min(self.options.store_timeout)
    }

    fn lost(&self, lease: &Lease) {
        // Between the choice and the outcome the attempt may have ended by itself, or its response may have been stored without our
        // knowing: neither is a loss.
        if self.renewal.remove(lease).is_some_and(|kept| !kept.ended) {
            tracing::warn!(id = %lease.id, "a running attempt lost its record: another attempt owns it, or the store has lost it");
        }
    }
}

fn shortest(batch: &[Renewal]) -> Duration {
    batch.iter().map(|renewal| renewal.extend).min().unwrap_or(SHORTEST)
}
