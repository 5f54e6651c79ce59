//! The leases of this process's attempts, and when each is due.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, Semaphore};

use crate::{lease::Lease, protocol::Renewal, runtime::timing::after};

/// The minimum time between two renewals of a lease, however short it is.
pub(super) const SHORTEST: Duration = Duration::from_millis(2);

/// The leases that are kept alive.
#[derive(Default)]
pub(in crate::runtime) struct LiveLeases {
    pub(in crate::runtime) state: Mutex<State>,
    /// Notified when a lease is due earlier than the renewal task expects.
    earlier: Notify,
}

#[derive(Default)]
pub(in crate::runtime) struct State {
    pub(in crate::runtime) leases: HashMap<Lease, LiveLease, BuildHasherDefault<TokenHasher>>,
    /// When the renewal task wakes; `None` while it sleeps until notified.
    wakes: Option<Instant>,
    /// The calls to the store that may still be in progress.
    calls: Vec<RenewCall>,
}

/// A call to the store: what it renews, and a semaphore without permits that is closed once the
/// call has ended.
struct RenewCall {
    renewals: Arc<[Renewal]>,
    ended: Arc<Semaphore>,
}

/// Leases that are renewed in one call. Dropping it ends the call.
pub(super) struct RenewBatch {
    pub(super) renewals: Arc<[Renewal]>,
    ended: Arc<Semaphore>,
}

impl Drop for RenewBatch {
    fn drop(&mut self) {
        self.ended.close();
    }
}

/// Hashes a lease by the last bytes of its owner token, which are random: this process drew them.
#[derive(Default)]
pub(in crate::runtime) struct TokenHasher(u64);

impl Hasher for TokenHasher {
    /// The token is hashed last.
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
pub(in crate::runtime) struct LiveLease {
    extend: Duration,
    due: Instant,
    /// Whether the attempt has ended; the store may or may not know.
    ended: bool,
    /// Whether the lease is renewed in a separate call, because its last renewal had no outcome
    /// while those of other leases had one.
    isolated: bool,
}

impl LiveLease {
    /// A lease of this length that was granted at `since` or later.
    fn new(extend: Duration, since: Instant) -> Self {
        Self { extend, due: after(since, pace(extend, 3)), ended: false, isolated: false }
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended
    }
}

impl LiveLeases {
    /// Keeps a lease alive that was granted at `since` or later.
    pub(in crate::runtime) fn insert(&self, lease: Lease, extend: Duration, since: Instant) {
        self.put(lease, LiveLease::new(extend, since));
    }

    /// Keeps the lease of an attempt that has ended alive until the store has its end.
    pub(in crate::runtime) fn restore(&self, lease: Lease, entry: LiveLease) {
        self.put(lease, LiveLease { ended: true, ..entry });
    }

    /// Keeps the lease of an attempt that has ended alive after its record was lost and claimed
    /// again at `since` or later.
    pub(in crate::runtime) fn restore_lost(&self, lease: Lease, extend: Duration, since: Instant) {
        self.put(lease, LiveLease { ended: true, ..LiveLease::new(extend, since) });
    }

    fn put(&self, lease: Lease, entry: LiveLease) {
        let due = entry.due;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.leases.insert(lease, entry);
        // Among leases of equal length a later one is never due earlier, so the task is notified
        // once each time that it sleeps.
        if state.wakes.is_none_or(|wakes| due < wakes) {
            state.wakes = Some(due);
            drop(state);
            self.earlier.notify_one();
        }
    }

    /// Stops keeping a lease alive; `None` if it was not kept alive.
    pub(in crate::runtime) fn remove(&self, lease: &Lease) -> Option<LiveLease> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).leases.remove(lease)
    }

    /// Removes the leases of earlier attempts at a record that this process has taken over. Those
    /// attempts are fenced.
    pub(in crate::runtime) fn remove_superseded(&self, by: &Lease) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.leases.retain(|lease, _| lease.id != by.id || lease.owner == by.owner);
    }

    /// Waits for the end of every call that may still renew this lease, after it was removed.
    pub(in crate::runtime) async fn wait_for_calls(&self, lease: &Lease) {
        let renews = |call: &&RenewCall| call.renewals.iter().any(|one| one.lease == *lease);
        let calls: Vec<_> = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.calls.iter().filter(renews).map(|call| call.ended.clone()).collect()
        };
        for ended in calls {
            // There are no permits: this returns when the semaphore is closed.
            let _ = ended.acquire().await;
        }
    }

    /// Sleeps until a lease is due.
    pub(in crate::runtime) async fn wait_until_due(&self) {
        let wakes = self.state.lock().unwrap_or_else(PoisonError::into_inner).wakes;
        let due = async {
            match wakes {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // In this order, not a random one, so that a simulation can be repeated.
            biased;
            () = due => {}
            () = self.earlier.notified() => {}
        }
    }

    /// Takes the leases that are due at `now`, if any, together with those that are due soon: one
    /// batch of the leases that are renewed together, and one for each isolated lease.
    ///
    /// So there are at most twelve calls during the length of a lease, however many attempts run
    /// and whenever they began. Each lease becomes due again after a sixth of its length, in case
    /// the store does not respond.
    pub(super) fn take_due(&self, now: Instant) -> (Option<RenewBatch>, Vec<RenewBatch>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut together, mut isolated) = (Vec::new(), Vec::new());
        let any = state.leases.values().any(|entry| entry.due <= now);
        let soon = |entry: &LiveLease| any && entry.due <= after(now, entry.extend / 12);
        for (lease, entry) in state.leases.iter_mut().filter(|(_, entry)| soon(entry)) {
            entry.due = after(now, pace(entry.extend, 6));
            let renewals = if entry.isolated { &mut isolated } else { &mut together };
            renewals.push(Renewal::new(*lease, entry.extend));
        }
        state.wakes = state.leases.values().map(|entry| entry.due).min();
        state.calls.retain(|call| !call.ended.is_closed());
        // The call of a single lease that still hangs is not repeated (case
        // `a_renewal_that_hangs_is_not_repeated_before_it_ends`).
        let single = |call: &RenewCall| match *call.renewals {
            [single] => Some(single),
            _ => None,
        };
        let hanging: Vec<_> = state.calls.iter().filter_map(single).collect();
        for renewals in [&mut together, &mut isolated] {
            renewals.retain(|renewal| !hanging.contains(renewal));
        }
        let isolated = isolated.into_iter().filter_map(|one| state.start_call(vec![one])).collect();
        (state.start_call(together), isolated)
    }

    /// Divides the leases of a batch that are still live into batches of at most `size`.
    pub(super) fn split(&self, batch: &[Renewal], size: usize) -> Vec<RenewBatch> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut live = batch.to_vec();
        live.retain(|renewal| state.leases.contains_key(&renewal.lease));
        live.chunks(size.max(1)).filter_map(|part| state.start_call(part.to_vec())).collect()
    }

    /// Notes that the store has responded for these leases, with whatever outcome.
    pub(super) fn responded(&self, batch: &[Renewal]) {
        self.update(batch, |entry| entry.isolated = false);
    }

    /// Notes that a lease was renewed by a call that was sent at this time.
    pub(super) fn renewed(&self, renewal: &Renewal, sent: Instant) {
        self.update(&[*renewal], |entry| entry.due = after(sent, pace(entry.extend, 3)));
    }

    /// Renews each of these leases in a separate call from now on.
    pub(super) fn isolate(&self, batch: &[Renewal]) {
        self.update(batch, |entry| entry.isolated = true);
    }

    fn update(&self, batch: &[Renewal], update: impl Fn(&mut LiveLease)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for renewal in batch {
            if let Some(entry) = state.leases.get_mut(&renewal.lease) {
                update(entry);
            }
        }
    }
}

impl State {
    /// Between the choice of a lease and the end of its call its attempt may be abandoned; choosing
    /// and registering the call under one lock lets the abandonment wait for the call (case
    /// `a_renewal_in_progress_does_not_revive_an_abandoned_attempt`).
    fn start_call(&mut self, renewals: Vec<Renewal>) -> Option<RenewBatch> {
        if renewals.is_empty() {
            return None;
        }
        let (renewals, ended) =
            (Arc::<[Renewal]>::from(renewals), Arc::new(Semaphore::const_new(0)));
        self.calls.push(RenewCall { renewals: renewals.clone(), ended: ended.clone() });
        Some(RenewBatch { renewals, ended })
    }
}

/// Returns a part of a lease's length, but never so little that the renewal task spins.
pub(super) fn pace(extend: Duration, parts: u32) -> Duration {
    (extend / parts).max(SHORTEST)
}
