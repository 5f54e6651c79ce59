//! Stores in memory, whose calls take a fraction of a microsecond and so hardly ever overlap by
//! themselves: the threads run under a scheduler that may switch between them before each lock.

use std::{
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use fastrand::Rng;

use super::{
    Event, History, OPERATIONS, THREADS, Thread, changes_are_rejected, is_linearizable, overlaps,
};
use crate::check_then_act::CheckThenActStore;
use idempotent_core::{
    OwnerToken, RecordId,
    clock::SystemClock,
    internals::interleave,
    store::{Store, memory::MemoryStore},
};

/// How often a verdict on a store is repeated.
const VERDICTS: usize = 20;
/// How many histories a verdict takes.
const HISTORIES: usize = 200;

/// Histories of this many threads on stores in memory.
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

/// The output of a future that never waits.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => unreachable!("a store in memory waits for nothing"),
    }
}

/// Whether each verdict on a store is that it is linearizable, or each that it is not.
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
fn a_store_that_checks_and_then_acts_is_not_linearizable() {
    let verdicts = verdicts(|| Arc::new(CheckThenActStore::new(SystemClock::new())));
    assert_eq!(verdicts, [false; VERDICTS]);
}

#[test]
fn changed_histories_of_the_memory_store_are_not_linearizable() {
    let histories =
        (0..3).flat_map(|seed| record(seed, || Arc::new(MemoryStore::new()))).collect::<Vec<_>>();
    changes_are_rejected(&histories);
}
