//! The conformance suite for stores, which verifies the contract of [`Store`]. Needs the feature
//! `conformance`.
//!
//! The same cases run on every store. This test runs all of them on yours:
//!
#![cfg_attr(feature = "memory", doc = "```no_run")]
#![cfg_attr(not(feature = "memory"), doc = "```ignore")]
//! # use idempotent_core::store::memory::MemoryStore as MyStore;
//! #[tokio::test]
//! async fn my_store_conforms() {
//!     idempotent_core::conformance::check(|| async { MyStore::new() }).await;
//! }
//! # // A `#[test]` is not compiled in an example, so its body is repeated here.
//! # async fn compiled() {
//! #     idempotent_core::conformance::check(|| async { MyStore::new() }).await;
//! # }
//! ```
//!
//! A store under test is a [`TestedStore`]. Every store implements `TestedStore`, and lets time
//! pass by sleeping; the cases run concurrently and take about 20 seconds. If a test can set the
//! clock of your store, implement `TestedStore` yourself, so that the cases need not sleep:
//!
#![cfg_attr(feature = "memory", doc = "```")]
#![cfg_attr(not(feature = "memory"), doc = "```ignore")]
//! use std::time::Duration;
//!
//! use idempotent_core::{Store, conformance::TestedStore};
//! use idempotent_core::{clock::ManualClock, store::memory::MemoryStore};
//!
//! struct InMemory {
//!     store: MemoryStore,
//!     clock: ManualClock,
//! }
//!
//! #[async_trait::async_trait]
//! impl TestedStore for InMemory {
//!     fn store(&self) -> &dyn Store {
//!         &self.store
//!     }
//!
//!     async fn advance(&self, by: Duration) {
//!         self.clock.advance(by);
//!     }
//!
//!     async fn set_back(&self, by: Duration) -> bool {
//!         self.clock.set_back(by);
//!         true
//!     }
//!
//!     fn tick(&self) -> Duration {
//!         Duration::from_secs(10)
//!     }
//! }
//! ```
//!
//! [`follow`] runs a whole history of actions on a store and on the [state
//! machine](crate::transition), and compares them after each action. Every [`Action::Advance`]
//! takes one tick. A subject that moves its time by rewriting records must not change a
//! `lease_until` of [`Timestamp::EPOCH`](crate::clock::Timestamp::EPOCH), which marks an abandoned
//! attempt.
#![expect(clippy::unwrap_used, reason = "a case fails when its store fails")]

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{sync::Semaphore, task::JoinSet};

use self::fixture::Fixture;
use crate::store::Store;

mod cases;
mod fixture;
mod follow;
mod history;

pub use cases::CASES;
pub use follow::follow;
pub use history::{Action, history};

/// A store under test, and the means to move its clock.
#[async_trait]
pub trait TestedStore: Send + Sync + 'static {
    /// Returns the store, or one of several stores that share their records. It is called before
    /// each call to the store. Each case uses new keys and does not depend on other keys in the
    /// store.
    fn store(&self) -> &dyn Store;

    /// Lets this amount of time pass on the clock of this subject's store, but not on the clock of
    /// any other subject. The default implementation sleeps.
    async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }

    /// Sets the clock of this subject's store back, and returns whether it can be set back. The
    /// default implementation returns `false`, and the cases about a clock that is set back then
    /// pass without a test.
    async fn set_back(&self, _by: Duration) -> bool {
        false
    }

    /// Returns the *tick*: the length of the lease with which the cases claim. The default is 2
    /// seconds; return more if [`advance`](Self::advance) does not sleep.
    ///
    /// The cases assume that the machine never stalls for half a tick. No case lets more than nine
    /// ticks pass.
    fn tick(&self) -> Duration {
        Duration::from_secs(2)
    }
}

/// A store is a subject that is tested in real time. To move the clock of a store, write a subject
/// that contains the store.
impl<S: Store> TestedStore for S {
    fn store(&self) -> &dyn Store {
        self
    }
}

type Run = fn(Fixture) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// One case of the suite.
#[derive(Clone, Copy)]
pub struct Case {
    name: &'static str,
    run: Run,
}

impl Case {
    /// Returns the name of the case: a sentence in `snake_case` that states what the case verifies.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Runs the case on a store that has been migrated.
    ///
    /// # Panics
    /// Panics if the store violates the case, or fails.
    pub async fn run(&self, subject: Arc<dyn TestedStore>) {
        (self.run)(Fixture::new(subject)).await;
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

/// The number of cases that run concurrently.
const CONCURRENT: usize = 16;

/// How often a case is run if its store fails with a transient error.
const TRIES: usize = 5;

/// Runs all cases, some of them concurrently. Each case gets a new subject, whose store is migrated
/// first.
///
/// If the store of a case fails with a transient error, because the machine is busy, the case runs
/// again with another subject, up to five times in all.
///
/// # Panics
/// Panics if a case has failed, once all cases have run. The message names every failed case.
pub async fn check<F, S>(subject: impl Fn() -> F)
where
    F: Future<Output = S>,
    S: TestedStore,
{
    let mut running = JoinSet::new();
    let places = Arc::new(Semaphore::new(CONCURRENT));
    for case in CASES {
        // Only closing the semaphore would make this fail.
        let place = places.clone().acquire_owned().await;
        let subject = Arc::new(subject().await);
        running.spawn(async move {
            let ended = case.run_migrated(subject).await;
            drop(place);
            (case, ended)
        });
    }
    let mut failed = Vec::new();
    for (case, mut ended) in running.join_all().await {
        for _ in 1..TRIES {
            if !ended.as_ref().is_err_and(|message| message.contains("(transient)")) {
                break;
            }
            ended = case.run_migrated(Arc::new(subject().await)).await;
        }
        if ended.is_err() {
            failed.push(case.name);
        }
    }
    assert!(failed.is_empty(), "{} of {} cases failed: {failed:#?}", failed.len(), CASES.len());
}

impl Case {
    /// Runs the case on a subject that is not migrated yet; returns the message of a failure.
    async fn run_migrated(&'static self, subject: Arc<dyn TestedStore>) -> Result<(), String> {
        let run = async move {
            subject.store().migrate().await.unwrap();
            self.run(subject).await;
        };
        match tokio::spawn(run).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let panic = error.into_panic();
                let message = panic.downcast_ref::<String>().cloned();
                Err(message
                    .or_else(|| Some((*panic.downcast_ref::<&str>()?).to_owned()))
                    .unwrap_or_default())
            }
        }
    }
}
