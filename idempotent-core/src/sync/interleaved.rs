//! Locks and counters for tests: within [`interleave`] another thread may run before each lock that
//! is taken and each counter that is read.
#![allow(unreachable_pub, reason = "reachable with the feature `internals`")]

use std::{
    cell::Cell,
    ops::{Deref, DerefMut},
    sync::{LockResult, PoisonError, atomic::Ordering},
};

use shuttle::{Config, Runner, scheduler::RandomScheduler};

thread_local! {
    static INTERLEAVED: Cell<bool> = const { Cell::new(false) };
}

/// The stack that a thread of a debug build needs, in bytes.
const STACK: usize = 0x4_0000;

/// Runs `body` this many times. Each time its `shuttle` threads run in another order, which the
/// seed determines.
pub fn interleave(seed: u64, times: usize, body: impl Fn() + Send + Sync + 'static) {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            INTERLEAVED.set(false);
        }
    }
    let mut config = Config::new();
    config.stack_size = STACK;
    // All `shuttle` threads run on this thread.
    INTERLEAVED.set(true);
    let _end = End;
    Runner::new(RandomScheduler::new_from_seed(seed, times), config).run(body);
}

fn let_others_run() {
    if INTERLEAVED.get() {
        shuttle::thread::yield_now();
    }
}

/// A mutex of std. Within [`interleave`] the scheduler knows the threads that wait for it.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    turn: shuttle::sync::Mutex<()>,
    value: std::sync::Mutex<T>,
}

/// The fields are dropped in this order.
pub struct MutexGuard<'a, T> {
    value: std::sync::MutexGuard<'a, T>,
    _turn: Option<shuttle::sync::MutexGuard<'a, ()>>,
}

impl<T> Mutex<T> {
    /// As [`std::sync::Mutex::new`].
    pub fn new(value: T) -> Self {
        Self { turn: shuttle::sync::Mutex::new(()), value: std::sync::Mutex::new(value) }
    }

    /// As [`std::sync::Mutex::lock`].
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let _turn =
            INTERLEAVED.get().then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        match self.value.lock() {
            Ok(value) => Ok(MutexGuard { value, _turn }),
            Err(poisoned) => {
                Err(PoisonError::new(MutexGuard { value: poisoned.into_inner(), _turn }))
            }
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[derive(Debug, Default)]
pub(crate) struct AtomicUsize(std::sync::atomic::AtomicUsize);

impl AtomicUsize {
    pub(crate) const fn new(value: usize) -> Self {
        Self(std::sync::atomic::AtomicUsize::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> usize {
        let_others_run();
        self.0.load(order)
    }

    pub(crate) fn fetch_add(&self, value: usize, order: Ordering) -> usize {
        let_others_run();
        self.0.fetch_add(value, order)
    }

    pub(crate) fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
        let_others_run();
        self.0.fetch_sub(value, order)
    }
}
