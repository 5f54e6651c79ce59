//! What all parts of a simulated history share: time, the network, the oracle, the trace.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{sync::mpsc, time::Instant};

use crate::oracle::Oracle;

/// Shared by everything in one history. All of it runs on one thread.
pub(crate) struct World {
    started: Instant,
    /// Futures that belong to no process, such as a request on its way to the database.
    outside: mpsc::UnboundedSender<BoxFuture<'static, ()>>,
    oracle: Mutex<Oracle>,
    /// Whether the network and the processes fail.
    chaotic: AtomicBool,
    ids: AtomicU64,
    /// A hash of all events and their times.
    hash: AtomicU64,
    traced: bool,
}

impl World {
    pub(crate) fn new(
        traced: bool,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<BoxFuture<'static, ()>>) {
        let (outside, futures) = mpsc::unbounded_channel();
        let world = Self {
            started: Instant::now(),
            outside,
            oracle: Mutex::default(),
            chaotic: AtomicBool::new(true),
            ids: AtomicU64::new(0),
            hash: AtomicU64::new(0xcbf2_9ce4_8422_2325),
            traced,
        };
        (Arc::new(world), futures)
    }

    /// The time since the start of the history.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn is_chaotic(&self) -> bool {
        self.chaotic.load(Ordering::Relaxed)
    }

    /// Ends all faults.
    pub(crate) fn calm(&self) {
        self.chaotic.store(false, Ordering::Relaxed);
    }

    /// A number that no other call returns.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Runs a future in a task that belongs to no process.
    pub(crate) fn spawn_outside(&self, future: impl Future<Output = ()> + Send + 'static) {
        let _ = self.outside.send(Box::pin(future));
    }

    /// Calls the oracle.
    pub(crate) fn oracle<T>(&self, call: impl FnOnce(&mut Oracle) -> T) -> T {
        call(&mut self.oracle.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A hash of all events so far and of their times.
    pub(crate) fn hash(&self) -> u64 {
        self.hash.load(Ordering::Relaxed)
    }

    /// Prints an event if the history is replayed.
    pub(crate) fn trace(&self, event: impl FnOnce() -> String) {
        let time = u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let hash = (self.hash() ^ time).wrapping_mul(0x0100_0000_01b3);
        self.hash.store(hash, Ordering::Relaxed);
        if self.traced {
            println!("{:>9.3}  {}", self.elapsed().as_secs_f64(), event());
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

/// True in `percent` of all calls.
pub(crate) fn chance(percent: u32) -> bool {
    fastrand::u32(0..100) < percent
}

/// A random duration of at least `least` and less than `most` milliseconds.
pub(crate) fn millis(least: u64, most: u64) -> Duration {
    Duration::from_micros(fastrand::u64(least * 1000..most * 1000))
}

/// A random one of these.
pub(crate) fn one_of<T: Copy>(values: &[T]) -> T {
    values[fastrand::usize(0..values.len())]
}
