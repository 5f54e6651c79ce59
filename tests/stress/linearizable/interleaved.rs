//! Memory stores. Their calls take a fraction of a microsecond and hardly ever overlap by
//! themselves, so the threads run under a scheduler that may switch between them before each lock.

use std::{
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use fastrand::Rng;

use super::{
    Event, History, OPERATIONS, THREADS, Thread, assert_changes_are_rejected, is_linearizable,
    overlaps,
};
use crate::check_then_act::CheckThenActStore;
use idempotent_core::{
    OwnerToken, RecordId,
    clock::SystemClock,
    internals::interleave,
    store::{Store, memory::MemoryStore},
};

/// How many verdicts each store gets.
const VERDICTS: usize = 20;
/// How many histories each verdict is based on.
const HISTORIES: usize = 200;

/// Records the histories of [`THREADS`] threads, each on a new store.
fn record(seed: u64, store: fn() -> Arc<dyn Store>) -> Vec<History> {
    let histories = Arc::new(Mutex::new(Vec::new()));
    let recorded = histories.clone();
    interleave(seed, HISTORIES, move || {
        let (store, history) = (store(), Arc::<Mutex<History>>::default());
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (store, history) = (store.clone(), history.clone());
                let owner = OwnerToken::random().unwrap();
                let thread =
                    Thread { number, store, id: RecordId::from_bytes([1; 32]), history, owner };
                shuttle::thread::spawn(move || ready(thread.work(&mut Rng::new())))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        recorded.lock().unwrap().push(std::mem::take(&mut *history.lock().unwrap()));
    });
    Arc::into_inner(histories).unwrap().into_inner().unwrap()
}

/// The output of a future that is ready at once.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => unreachable!("a memory store never waits"),
    }
}

/// The verdicts on a store: whether all histories of a verdict are linearizable.
fn verdicts(store: fn() -> Arc<dyn Store>) -> Vec<bool> {
    let verdict = |seed| {
        let histories = record(seed, store);
        let operations =
            histories.iter().flatten().filter(|event| matches!(event, Event::Called(..))).count();
        assert_eq!((histories.len(), operations), (HISTORIES, HISTORIES * THREADS * OPERATIONS));
        let overlapping = histories.iter().filter(|history| overlaps(history)).count();
        assert!(
            overlapping * 10 >= HISTORIES * 9,
            "only {overlapping} of {HISTORIES} histories overlap"
        );
        histories.iter().all(is_linearizable)
    };
    (0..).take(VERDICTS).map(verdict).collect()
}

#[test]
fn the_memory_store_is_linearizable() {
    let verdicts = verdicts(|| Arc::new(MemoryStore::new().max_records(8)));
    assert_eq!(verdicts, [true; VERDICTS]);
}

#[test]
fn a_check_then_act_store_is_not_linearizable() {
    let verdicts = verdicts(|| Arc::new(CheckThenActStore::new(SystemClock::new())));
    assert_eq!(verdicts, [false; VERDICTS]);
}

#[test]
fn changed_histories_of_the_memory_store_are_not_linearizable() {
    let histories =
        (0..3).flat_map(|seed| record(seed, || Arc::new(MemoryStore::new()))).collect::<Vec<_>>();
    assert_changes_are_rejected(&histories);
}
