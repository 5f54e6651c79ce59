//! Duplicates that wait for the first attempt's answer.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use tokio::{
    sync::{Notify, futures::Notified},
    time::{Instant, timeout},
};

use crate::{
    error::StoreError,
    fingerprint::RequestDigest,
    protocol::{Claim, ClaimOutcome},
    record_id::RecordId,
    runtime::{
        Shared,
        claiming::{Asked, draw},
        patience::jittered,
    },
    sync::{AtomicUsize, Mutex},
};

/// The first pause between two looks at a key that another process holds; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// Who waits for which key, so that an attempt that ends in this process wakes them at once.
pub(super) struct Waiting {
    per_key: usize,
    /// How many wait in all; spares an attempt that ends the look under the lock.
    total: AtomicUsize,
    keys: Mutex<HashMap<RecordId, Arc<Key>>>,
}

#[derive(Default)]
struct Key {
    waiters: AtomicUsize,
    ended: Notify,
}

impl Waiting {
    pub(super) fn new(per_key: usize) -> Self {
        Self { per_key, total: AtomicUsize::new(0), keys: Mutex::default() }
    }

    /// Wakes everyone who waits for a key.
    pub(super) fn wake(&self, id: &RecordId) {
        if self.total.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(key) = self.keys.lock().unwrap_or_else(PoisonError::into_inner).get(id) {
            key.ended.notify_waiters();
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.total.load(Ordering::SeqCst)
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(super) fn enter(&self, id: &RecordId) -> Option<Place<'_>> {
        if self.per_key == 0 {
            return None;
        }
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let key = keys.entry(*id).or_default();
        if key.waiters.load(Ordering::SeqCst) >= self.per_key {
            return None;
        }
        key.waiters.fetch_add(1, Ordering::SeqCst);
        self.total.fetch_add(1, Ordering::SeqCst);
        Some(Place { waiting: self, id: *id, key: key.clone() })
    }
}

/// A place among those who wait; given up when dropped.
pub(super) struct Place<'a> {
    waiting: &'a Waiting,
    id: RecordId,
    key: Arc<Key>,
}

impl Place<'_> {
    /// Hears of an end from the call on, polled or not.
    pub(super) fn ended(&self) -> Notified<'_> {
        self.key.ended.notified()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut keys = self.waiting.keys.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.total.fetch_sub(1, Ordering::SeqCst);
        if self.key.waiters.fetch_sub(1, Ordering::SeqCst) == 1 {
            keys.remove(&self.id);
        }
    }
}

impl Shared {
    /// Claims again, each time that the key may have come free, for so long.
    ///
    /// Between two claims another attempt may end and a third begin; each claim is a new question to the store, so that is only one
    /// more round (case `a_released_key_goes_to_one_of_those_who_wait`).
    pub(super) async fn wait(
        self: &Arc<Self>,
        id: &RecordId,
        claim: &Claim,
        digest: RequestDigest,
        wait: Duration,
        mut asked: Asked,
    ) -> Asked {
        if wait.is_zero() {
            return asked;
        }
        // Of the caller's runtime, whose time may be paused; so are the pauses below.
        let started = Instant::now();
        let Some(place) = self.waiting.enter(id) else { return asked };
        let mut pause = FIRST_PAUSE;
        loop {
            // Between the claim and the pause the attempt may end; it is heard from here on, polled or not (case
            // `an_attempt_that_ends_while_a_claim_is_under_way_is_heard`).
            let ended = place.ended();
            match self.claim_anew(id, claim, digest).await {
                Ok(answer) => asked = answer,
                // That the key is in flight was known before, and a failure does not make it unknown.
                Err(error) => {
                    tracing::warn!(%id, %error, "a key that is waited for could not be asked for; it is again")
                }
            }
            if !matches!(asked.outcome, ClaimOutcome::InFlight { .. }) {
                return asked;
            }
            let left = wait.saturating_sub(started.elapsed());
            if left.is_zero() {
                return asked;
            }
            let _ = timeout(left.min(jittered(pause)), ended).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A claim with a token of its own: the one before may have failed, and is then given back under its token in the background.
    async fn claim_anew(
        self: &Arc<Self>,
        id: &RecordId,
        claim: &Claim,
        digest: RequestDigest,
    ) -> Result<Asked, StoreError> {
        self.claim(id, &Claim { owner: draw()?, ..*claim }, digest).await
    }
}
