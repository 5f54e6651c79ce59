//! The leases of this process's running attempts.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, watch};

use crate::{lease::Lease, protocol::Renewal, runtime::patience::after};

mod rounds;

/// The least time between two renewals of a lease, however short it is.
const SHORTEST: Duration = Duration::from_millis(2);

/// What the renewal task keeps alive.
#[derive(Default)]
pub(super) struct Live {
    leases: Mutex<Leases>,
    /// Rung when the task has to get up earlier than it meant to.
    earlier: Notify,
}

#[derive(Default)]
struct Leases {
    live: HashMap<Lease, Kept, BuildHasherDefault<ByToken>>,
    /// When the task means to get up; `None` while it sleeps for good.
    wakes: Option<Instant>,
    /// The calls to the store that may still be in progress.
    calls: Vec<Call>,
}

/// A call to the store: what it renews, and a channel that closes when it has ended.
struct Call {
    batch: Arc<[Renewal]>,
    ended: watch::Receiver<()>,
}

/// Leases that are chosen to be renewed in one call, which has ended when this is dropped.
struct Chosen {
    batch: Arc<[Renewal]>,
    _ended: watch::Sender<()>,
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
    /// Its last renewal had no outcome, unlike those of its neighbours; it is renewed in a call of its own until one has.
    alone: bool,
}

impl Live {
    /// Keeps a lease alive that began at `since` or later.
    pub(super) fn insert(&self, lease: Lease, extend: Duration, since: Instant) {
        self.keep(lease, Kept { extend, due: after(since, pace(extend, 3)), ended: false, alone: false });
    }

    /// Keeps a lease alive whose attempt has ended, until the store knows.
    pub(super) fn restore(&self, lease: Lease, kept: Kept) {
        self.keep(lease, Kept { ended: true, ..kept });
    }

    /// Keeps a lease alive again whose attempt has ended, and whose record was lost and claimed again at `since` or later.
    pub(super) fn restore_lost(&self, lease: Lease, extend: Duration, since: Instant) {
        self.keep(lease, Kept { extend, due: after(since, pace(extend, 3)), ended: true, alone: false });
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

    /// Removes the leases of earlier attempts at a record that this process has taken over: they are fenced.
    pub(super) fn supersede(&self, by: &Lease) {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        leases.live.retain(|lease, _| lease.id != by.id || lease.owner == by.owner);
    }

    /// Returns when every call has ended that may still renew a lease that was removed before.
    pub(super) async fn calm(&self, lease: &Lease) {
        let of_lease = |call: &&Call| call.batch.iter().any(|renewal| renewal.lease == *lease);
        let calls: Vec<_> = {
            let leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
            leases.calls.iter().filter(of_lease).map(|call| call.ended.clone()).collect()
        };
        for mut ended in calls {
            // Nothing is ever sent: this ends when the sender is dropped.
            let _ = ended.changed().await;
        }
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
    /// that the store does not respond. First those that go together, if any, then each that goes alone.
    fn due(&self, now: Instant) -> (Option<Chosen>, Vec<Chosen>) {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut together, mut alone) = (Vec::new(), Vec::new());
        let any = leases.live.values().any(|entry| entry.due <= now);
        let soon = |entry: &Kept| any && entry.due <= after(now, entry.extend / 12);
        for (lease, entry) in leases.live.iter_mut().filter(|(_, entry)| soon(entry)) {
            entry.due = after(now, pace(entry.extend, 6));
            let renewals = if entry.alone { &mut alone } else { &mut together };
            renewals.push(Renewal { lease: *lease, extend: entry.extend });
        }
        leases.wakes = leases.live.values().map(|entry| entry.due).min();
        leases.calls.retain(|call| call.ended.has_changed().is_ok());
        // One that still hangs is not sent again.
        alone.retain(|renewal| !leases.calls.iter().any(|call| *call.batch == [*renewal]));
        (leases.choose(together), alone.into_iter().filter_map(|renewal| leases.choose(vec![renewal])).collect())
    }

    /// Chooses again, in parts of at most `size`, those of a batch whose attempts still run.
    fn parts(&self, batch: &[Renewal], size: usize) -> Vec<Chosen> {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let mut live = batch.to_vec();
        live.retain(|renewal| leases.live.contains_key(&renewal.lease));
        live.chunks(size.max(1)).filter_map(|part| leases.choose(part.to_vec())).collect()
    }

    /// Notes that the store has responded for these leases, at whatever outcome.
    fn responded(&self, batch: &[Renewal]) {
        self.mark(batch, |entry| entry.alone = false);
    }

    fn renewed(&self, renewal: &Renewal, sent: Instant) {
        self.mark(&[*renewal], |entry| entry.due = after(sent, pace(entry.extend, 3)));
    }

    /// Keeps these leases apart from their neighbours.
    fn part(&self, batch: &[Renewal]) {
        self.mark(batch, |entry| entry.alone = true);
    }

    fn mark(&self, batch: &[Renewal], mark: impl Fn(&mut Kept)) {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        for renewal in batch {
            if let Some(entry) = leases.live.get_mut(&renewal.lease) {
                mark(entry);
            }
        }
    }
}

impl Leases {
    /// Between the choice of a lease and the end of its call, an abandonment of it must wait: both are under one lock, so that it does
    /// (case `a_renewal_under_way_does_not_revive_what_is_abandoned`).
    fn choose(&mut self, batch: Vec<Renewal>) -> Option<Chosen> {
        if batch.is_empty() {
            return None;
        }
        let (batch, (sender, ended)) = (Arc::<[Renewal]>::from(batch), watch::channel(()));
        self.calls.push(Call { batch: batch.clone(), ended });
        Some(Chosen { batch, _ended: sender })
    }
}

/// A part of a lease, and never so little that the task spins.
fn pace(extend: Duration, parts: u32) -> Duration {
    (extend / parts).max(SHORTEST)
}
