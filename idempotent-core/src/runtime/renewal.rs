//! The leases of this process's running attempts.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::{
    lease::Lease,
    runtime::{
        Shared,
        patience::{after, in_time, now},
    },
    store::{RenewOutcome, Renewal},
};

/// The least time between two renewals of a lease, however short it is.
const SHORTEST: Duration = Duration::from_millis(2);

/// The least time that a renewal is waited for, however short the leases in it are.
const LEAST_LIMIT: Duration = Duration::from_secs(1);

/// What the renewal task keeps alive.
#[derive(Default)]
pub(super) struct Live {
    leases: Mutex<Leases>,
    /// Rung when the task has to get up earlier than it meant to.
    earlier: Notify,
    /// Held from the choice of the leases that are renewed to the store's answer.
    sending: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Leases {
    live: HashMap<Lease, Kept, BuildHasherDefault<ByToken>>,
    /// When the task means to get up; `None` while it sleeps for good.
    wakes: Option<Instant>,
}

/// Hashes a lease by the end of its owner token, which is random already: this process has drawn it.
#[derive(Default)]
struct ByToken(u64);

impl Hasher for ByToken {
    /// The token comes last.
    fn write(&mut self, bytes: &[u8]) {
        if let Some(end) = bytes.last_chunk() {
            self.0 = u64::from_le_bytes(*end);
        }
    }

    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A lease that is kept alive.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    extend: Duration,
    due: Instant,
    /// Its attempt has ended, and the store may or may not know.
    ended: bool,
}

impl Live {
    /// Keeps a lease alive that began at `since` or later.
    pub(super) fn insert(&self, lease: Lease, extend: Duration, since: Instant) {
        self.keep(lease, Kept { extend, due: after(since, pace(extend, 3)), ended: false });
    }

    /// Keeps a lease alive whose attempt has ended, until the store knows.
    pub(super) fn restore(&self, lease: Lease, kept: Kept) {
        self.keep(lease, Kept { ended: true, ..kept });
    }

    fn keep(&self, lease: Lease, kept: Kept) {
        let due = kept.due;
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        leases.live.insert(lease, kept);
        // With equal leases a later one is never due earlier, so the task is rung once for each time that it sleeps.
        if leases.wakes.is_none_or(|wakes| due < wakes) {
            leases.wakes = Some(due);
            drop(leases);
            self.earlier.notify_one();
        }
    }

    /// Lets a lease go, if it was kept alive.
    pub(super) fn remove(&self, lease: &Lease) -> Option<Kept> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).live.remove(lease)
    }

    /// Returns when every renewal that may still have a lease that was removed before has been answered.
    pub(super) async fn calm(&self) {
        drop(self.sending.lock().await);
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).live.len()
    }

    /// Sleeps until a lease is due.
    pub(super) async fn sleep(&self) {
        let wakes = self.leases.lock().unwrap_or_else(PoisonError::into_inner).wakes;
        let due = async {
            match wakes {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => {}
            () = self.earlier.notified() => {}
        }
    }

    /// The leases that are due at `now`, if there are any, and with them those that soon will be: so, however many attempts run, and
    /// however far apart they began, a lease's length takes a dozen calls at most. Each is put off by a sixth of its length in case
    /// that the store does not answer.
    fn due(&self, now: Instant) -> Vec<Renewal> {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let mut renewals = Vec::new();
        let any = leases.live.values().any(|entry| entry.due <= now);
        let soon = |entry: &Kept| any && entry.due <= after(now, entry.extend / 12);
        for (lease, entry) in leases.live.iter_mut().filter(|(_, entry)| soon(entry)) {
            entry.due = after(now, pace(entry.extend, 6));
            renewals.push(Renewal { lease: *lease, extend: entry.extend });
        }
        leases.wakes = leases.live.values().map(|entry| entry.due).min();
        renewals
    }

    fn renewed(&self, renewal: &Renewal, sent: Instant) {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = leases.live.get_mut(&renewal.lease) {
            entry.due = after(sent, pace(renewal.extend, 3));
        }
    }
}

/// A part of a lease, and never so little that the task spins.
fn pace(extend: Duration, parts: u32) -> Duration {
    (extend / parts).max(SHORTEST)
}

impl Shared {
    /// Renews what is due, all in one call. A call that fails is no loss: it is made again while the lease lasts.
    pub(super) async fn renew_due(&self) {
        let _sending = self.renewal.sending.lock().await;
        let sent = now();
        let due = self.renewal.due(sent);
        if due.is_empty() {
            return;
        }
        match in_time(self.renewal_limit(&due), self.store.renew(&due)).await {
            Ok(outcomes) => {
                for (renewal, outcome) in due.iter().zip(outcomes) {
                    match outcome {
                        RenewOutcome::Renewed => self.renewal.renewed(renewal, sent),
                        RenewOutcome::Fenced => self.lost(&renewal.lease),
                        // It is due again after a sixth of its length.
                        RenewOutcome::Unknown => {
                            tracing::debug!(id = %renewal.lease.id, "renewing a lease had no outcome; retrying");
                        }
                    }
                }
            }
            Err(error) => {
                let cause = std::error::Error::source(&error);
                tracing::warn!(%error, cause, leases = due.len(), "leases could not be renewed; they are tried again");
            }
        }
    }

    /// As long as until the next renewal of the shortest lease, but not so short that a busy store is never heard.
    fn renewal_limit(&self, due: &[Renewal]) -> Duration {
        let shortest = due.iter().map(|renewal| renewal.extend).min().unwrap_or_default();
        (shortest / 6).max(LEAST_LIMIT).min(self.options.store_timeout)
    }

    fn lost(&self, lease: &Lease) {
        // Between the look and the answer the attempt may have ended by itself, or its answer may have been stored without our
        // knowing: neither is a loss.
        if self.renewal.remove(lease).is_some_and(|kept| !kept.ended) {
            tracing::warn!(id = %lease.id, "a running attempt lost its key to another");
        }
    }
}
