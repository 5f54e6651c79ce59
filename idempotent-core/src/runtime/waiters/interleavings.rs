//! Waiters and an attempt that ends, in many orders of their steps.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
    task::{Context, Waker},
};

use super::Waiters;
use crate::{
    record_id::RecordId,
    sync::{AtomicUsize, interleave},
};

/// A count over all orders. It is a counter of std, since reading it is not a step.
type Tally = Arc<std::sync::atomic::AtomicUsize>;

const ID: RecordId = RecordId::from_bytes([1; 32]);
/// The number of seeds.
const SEEDS: usize = 20;
/// The number of orders for each seed.
const ORDERS: usize = 800;

/// The state that the threads share.
struct Scene {
    waiting: Waiters,
    /// Whether the store has the end of the attempt.
    stored: AtomicUsize,
    /// Whether the attempt has woken the waiters.
    woken: AtomicUsize,
    places: AtomicUsize,
    steps: AtomicUsize,
    paused: Tally,
    never_woken: Tally,
}

impl Scene {
    fn attempt(&self) {
        // The handler runs for a while: each of these is a step.
        while self.places.load(SeqCst) == 0 && self.steps.fetch_add(1, SeqCst) < 8 {}
        self.stored.fetch_add(1, SeqCst);
        self.waiting.wake(&ID);
        self.woken.fetch_add(1, SeqCst);
    }

    /// Registers and gives up before the attempt ends.
    fn impatient(&self) {
        for _ in 0..2 {
            let Some(_place) = self.waiting.register(&ID) else { return };
            assert!(self.places.fetch_add(1, SeqCst) < 2, "more waiters than the limit");
            self.places.fetch_sub(1, SeqCst);
        }
    }

    /// Claims as [`Claims::claim`](crate::runtime::claims::Claims::claim) does. `listens_first` is
    /// whether it listens for the end from before the claim on.
    fn waiter(&self, listens_first: bool) {
        let Some(place) = self.waiting.register(&ID) else { return };
        assert!(self.places.fetch_add(1, SeqCst) < 2, "more waiters than the limit");
        // Others may run after the claim, as before it.
        let stored = || (self.stored.load(SeqCst) == 1, self.steps.load(SeqCst)).0;
        if listens_first {
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

/// The number of waiters that were never woken, in the orders of one seed.
fn never_woken(seed: u64, listens_first: bool) -> usize {
    let (never_woken, paused) = (Tally::default(), Tally::default());
    let tallies = (never_woken.clone(), paused.clone());
    interleave(seed, ORDERS, move || {
        let count = || AtomicUsize::new(0);
        let (never_woken, paused) = tallies.clone();
        let (stored, woken, places, steps) = (count(), count(), count(), count());
        let scene = Arc::new(Scene {
            waiting: Waiters::new(2),
            stored,
            woken,
            places,
            steps,
            paused,
            never_woken,
        });
        let thread = |body: fn(&Scene, bool)| {
            let scene = scene.clone();
            shuttle::thread::spawn(move || body(&scene, listens_first))
        };
        let impatient = thread(|scene, _| scene.impatient());
        let attempt = thread(|scene, _| scene.attempt());
        let threads = [impatient, thread(Scene::waiter), attempt, thread(Scene::waiter)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(
            (scene.waiting.total.load(SeqCst), scene.waiting.keys.lock().unwrap().len()),
            (0, 0),
            "a waiter is still registered"
        );
    });
    assert!(paused.load(Relaxed) >= ORDERS / 4, "too few waiters paused: {paused:?}");
    never_woken.load(Relaxed)
}

#[test]
fn the_end_of_an_attempt_wakes_every_waiter() {
    assert_eq!(
        (0..).take(SEEDS).map(|seed| never_woken(seed, true)).collect::<Vec<_>>(),
        [0; SEEDS]
    );
}

#[test]
fn a_waiter_that_listens_only_after_the_claim_misses_an_end() {
    let lost = (0..).take(SEEDS).map(|seed| never_woken(seed, false)).collect::<Vec<_>>();
    assert!(lost.iter().all(|lost| *lost > 0), "{lost:?}");
}
