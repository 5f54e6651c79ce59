//! Duplicates that wait, and the attempt that ends: in many orders of their steps.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
    task::{Context, Waker},
};

use crate::{
    record_id::RecordId,
    runtime::waiting::Waiting,
    sync::{AtomicUsize, interleave},
};

/// What is counted over all orders, by std's own counters: these are no steps.
type Tally = Arc<std::sync::atomic::AtomicUsize>;

const ID: RecordId = RecordId::from_bytes([1; 32]);
/// How often a verdict is reached anew.
const VERDICTS: usize = 20;
/// In how many orders for one.
const ORDERS: usize = 800;

/// What the threads share.
struct Scene {
    waiting: Waiting,
    /// Whether the store has the end of the attempt.
    stored: AtomicUsize,
    /// Whether everyone was woken whom the attempt woke.
    woken: AtomicUsize,
    places: AtomicUsize,
    steps: AtomicUsize,
    paused: Tally,
    never_woken: Tally,
}

impl Scene {
    fn attempt(&self) {
        // It works for a while: each of these is a step.
        while self.places.load(SeqCst) == 0 && self.steps.fetch_add(1, SeqCst) < 8 {}
        self.stored.fetch_add(1, SeqCst);
        self.waiting.wake(&ID);
        self.woken.fetch_add(1, SeqCst);
    }

    /// Gives up before the attempt ends.
    fn impatient(&self) {
        for _ in 0..2 {
            let Some(_place) = self.waiting.enter(&ID) else { return };
            assert!(self.places.fetch_add(1, SeqCst) < 2, "more wait than may");
            self.places.fetch_sub(1, SeqCst);
        }
    }

    /// Claims as [`Shared::wait`](crate::runtime::Shared) does: `heard` says whether from before the claim on.
    fn waiter(&self, heard: bool) {
        let Some(place) = self.waiting.enter(&ID) else { return };
        assert!(self.places.fetch_add(1, SeqCst) < 2, "more wait than may");
        // After the claim, as before it, others may run.
        let stored = || (self.stored.load(SeqCst) == 1, self.steps.load(SeqCst)).0;
        if heard {
            let ended = place.ended();
            if !stored() {
                self.pause(ended);
            }
        } else if !stored() {
            self.pause(place.ended());
        }
        self.places.fetch_sub(1, SeqCst);
    }

    fn pause(&self, ended: impl Future<Output = ()>) {
        self.paused.fetch_add(1, Relaxed);
        let mut ended = pin!(ended);
        loop {
            let last = self.woken.load(SeqCst) == 1;
            if ended.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                return;
            }
            if last {
                self.never_woken.fetch_add(1, Relaxed);
                return;
            }
        }
    }
}

/// How many were never woken, in as many orders as one verdict takes.
fn never_woken(seed: u64, heard: bool) -> usize {
    let (never_woken, paused) = (Tally::default(), Tally::default());
    let tallies = (never_woken.clone(), paused.clone());
    interleave(seed, ORDERS, move || {
        let count = || AtomicUsize::new(0);
        let (never_woken, paused) = tallies.clone();
        let (stored, woken, places, steps) = (count(), count(), count(), count());
        let scene = Arc::new(Scene { waiting: Waiting::new(2), stored, woken, places, steps, paused, never_woken });
        let thread = |body: fn(&Scene, bool)| {
            let scene = scene.clone();
            shuttle::thread::spawn(move || body(&scene, heard))
        };
        let impatient = thread(|scene, _| scene.impatient());
        let attempt = thread(|scene, _| scene.attempt());
        let threads = [impatient, thread(Scene::waiter), attempt, thread(Scene::waiter)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((scene.waiting.count(), scene.waiting.keys()), (0, 0), "someone still has a place");
    });
    assert!(paused.load(Relaxed) >= ORDERS / 4, "hardly anyone paused: {paused:?}");
    never_woken.load(Relaxed)
}

#[test]
fn the_end_of_an_attempt_wakes_everyone_who_pauses() {
    assert_eq!((0..).take(VERDICTS).map(|seed| never_woken(seed, true)).collect::<Vec<_>>(), [0; VERDICTS]);
}

#[test]
fn one_who_listens_only_after_the_claim_is_never_woken_in_some_order() {
    let lost = (0..).take(VERDICTS).map(|seed| never_woken(seed, false)).collect::<Vec<_>>();
    assert!(lost.iter().all(|lost| *lost > 0), "{lost:?}");
}
