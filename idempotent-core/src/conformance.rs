//! The suite that holds a store to the contract of [`Store`].
//!
//! Every case is written once and runs on every store. Four lines run them all on yours:
//!
#![cfg_attr(feature = "memory", doc = "```no_run")]
#![cfg_attr(not(feature = "memory"), doc = "```ignore")]
//! # use idempotent_core::store::memory::MemoryStore as MyStore;
//! #[tokio::test]
//! async fn my_store_conforms() {
//!     idempotent_core::conformance::check(|| async { MyStore::new() }).await;
//! }
//! # // A `#[test]` is not compiled in an example, so here is its body again.
//! # async fn compiled() {
//! #     idempotent_core::conformance::check(|| async { MyStore::new() }).await;
//! # }
//! ```
//!
//! A store under test is a [`Subject`]. Every store is one that lets time pass by sleeping; all cases run side by side, so that takes
//! about 20 seconds. Implement `Subject` yourself where you can move the time of your store, and it takes none:
//!
#![cfg_attr(feature = "memory", doc = "```")]
#![cfg_attr(not(feature = "memory"), doc = "```ignore")]
//! use std::time::Duration;
//!
//! use idempotent_core::{Store, conformance::Subject};
//! use idempotent_core::{clock::ManualClock, store::memory::MemoryStore};
//!
//! struct InMemory {
//!     store: MemoryStore,
//!     clock: ManualClock,
//! }
//!
//! #[async_trait::async_trait]
//! impl Subject for InMemory {
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
//! [`follow`] goes further: it drives a store beside the pure function through a history, and compares them at every step.
//! It costs an advance of one tick for every [`Step::Advance`]. A subject that moves its time by rewriting records leaves a `lease_until` of
//! [`Timestamp::EPOCH`](crate::clock::Timestamp::EPOCH) as it is: it is no time.
#![expect(clippy::unwrap_used, reason = "a store that fails, fails its case")]

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{sync::Semaphore, task::JoinSet};

use self::bench::Bench;
use crate::store::Store;

mod bench;
mod cases;
mod follow;

pub use follow::{Step, follow, history};

/// A store under test, and its time.
#[async_trait]
pub trait Subject: Send + Sync + 'static {
    /// The store, or one of several that share their records: the cases ask anew for each call. They use keys of their own, and
    /// count on nothing that others can do to other keys.
    fn store(&self) -> &dyn Store;

    /// Lets so much time pass on the clock of this subject's store, and of no other subject's. It sleeps unless you know better.
    async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }

    /// Sets that clock back and returns true, or returns false where it cannot be set back: then the cases about that hold.
    async fn set_back(&self, _by: Duration) -> bool {
        false
    }

    /// The lease that the cases claim with: they expect the machine not to stall for half of it. No case lets more than nine of
    /// them pass. 2 seconds unless you say otherwise; where [`advance`](Self::advance) does not sleep, take more.
    fn tick(&self) -> Duration {
        Duration::from_secs(2)
    }
}

/// A store is tested in real time. (So a subject whose time is moved has a store, and is none.)
impl<S: Store> Subject for S {
    fn store(&self) -> &dyn Store {
        self
    }
}

type Run = fn(Bench) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// One thing that holds of every store.
#[derive(Clone, Copy)]
pub struct Case {
    name: &'static str,
    run: Run,
}

impl Case {
    /// What holds, as a sentence in `snake_case`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Runs the case on a migrated store.
    ///
    /// # Panics
    /// When it does not hold, or the store fails.
    pub async fn run(&self, subject: Arc<dyn Subject>) {
        (self.run)(Bench::new(subject)).await;
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

/// How many cases run at once.
const SIDE_BY_SIDE: usize = 16;

/// How often a case is tried in which the store fails with a transient error.
const TRIES: usize = 5;

/// Migrates a subject for each case and runs them all, some side by side. A case in which the store failed with a transient error,
/// because the machine is busy, is tried again with another subject, up to five times in all.
///
/// # Panics
/// When a case does not hold; all others are run nevertheless, and the message names every one that failed.
pub async fn check<F, S>(subject: impl Fn() -> F)
where
    F: Future<Output = S>,
    S: Subject,
{
    let mut running = JoinSet::new();
    let places = Arc::new(Semaphore::new(SIDE_BY_SIDE));
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
            if !ended.as_ref().is_err_and(|message| message.contains("kind: Transient")) {
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
    /// Runs the case on a subject that is not migrated yet; returns the message if it does not hold.
    async fn run_migrated(&'static self, subject: Arc<dyn Subject>) -> Result<(), String> {
        let run = async move {
            subject.store().migrate().await.unwrap();
            self.run(subject).await;
        };
        match tokio::spawn(run).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let panic = error.into_panic();
                let message = panic.downcast_ref::<String>().cloned();
                Err(message.or_else(|| Some((*panic.downcast_ref::<&str>()?).to_owned())).unwrap_or_default())
            }
        }
    }
}

macro_rules! cases {
    ($($module:ident { $($name:ident,)+ })+) => {
        /// Every case, for a harness of your own.
        pub const CASES: &[Case] = &[$($(
            Case { name: stringify!($name), run: |bench| Box::pin(cases::$module::$name(bench)) },
        )+)+];
    };
}

cases! {
    claiming {
        the_first_claim_of_a_key_is_granted,
        a_key_that_is_at_work_is_in_flight_for_others,
        a_claim_that_is_sent_again_is_granted_again_with_a_whole_lease,
        another_fingerprint_is_a_mismatch_while_in_flight,
        another_fingerprint_is_a_mismatch_after_the_lease,
        another_fingerprint_is_a_mismatch_while_held,
        another_fingerprint_is_a_mismatch_once_completed,
        a_lapsed_claim_is_taken_over_as_the_next_attempt,
        a_takeover_keeps_what_the_first_claim_fixed,
        what_happens_to_one_key_does_not_touch_another,
        a_look_up_shows_the_record_and_changes_nothing,
        migrations_side_by_side_all_pass,
    }
    completing {
        an_answer_is_replayed,
        recordings_come_back_byte_for_byte,
        completing_again_passes_and_keeps_the_first_answer,
        a_late_owner_that_nobody_replaced_completes,
        a_released_key_is_as_if_it_had_never_been_claimed,
        an_abandoned_key_can_be_taken_over_at_once,
        a_completed_key_is_neither_renewed_nor_released_nor_abandoned,
    }
    fencing {
        a_stranger_can_do_nothing,
        a_replaced_owner_can_do_nothing,
        nobody_owns_an_absent_key,
        an_owner_of_one_key_does_not_own_another,
        what_is_done_to_one_key_of_an_owner_is_not_done_to_another,
        the_owner_of_an_expired_answer_cannot_touch_the_next_one,
    }
    renewing {
        a_renewed_lease_lasts,
        a_lapsed_lease_that_nobody_took_is_renewed,
        renewals_are_answered_in_order,
        renewing_nothing_is_answered_with_nothing,
    }
    holding {
        an_abandoned_key_is_held,
        a_lapsed_key_is_held_when_either_claim_wants_it,
        a_held_key_never_runs_again_even_after_its_ttl,
        a_late_owner_completes_a_held_key,
        the_owner_of_a_held_key_can_neither_renew_nor_release_it,
        a_held_key_is_resolved_by_an_answer,
        a_held_key_is_resolved_by_a_release,
        a_lapsed_key_is_resolved_before_anyone_asks_for_it,
        a_key_that_is_not_held_is_not_resolved,
        a_resolution_needs_the_owner_that_was_seen,
        a_late_owner_is_fenced_by_a_resolution,
    }
    expiring {
        an_expired_answer_makes_room_for_a_new_request,
        a_claim_at_work_outlives_its_ttl,
        an_answer_that_comes_after_the_ttl_is_replayed,
        a_resolution_that_comes_after_the_ttl_is_replayed,
        a_lapsed_claim_expires_with_its_ttl,
        a_purge_spares_what_is_alive,
        a_purge_removes_what_has_expired,
        a_purge_removes_no_more_than_it_may,
    }
    racing {
        one_of_many_concurrent_claims_wins,
        one_of_many_concurrent_takeovers_wins,
        one_of_many_concurrent_claims_of_an_expired_key_wins,
        a_claim_sent_many_times_at_once_is_granted_to_its_owner,
        concurrent_takeovers_by_hold_never_run,
        one_of_takeover_and_completion_wins,
        one_of_takeover_and_release_wins,
        an_answer_is_not_lost_to_a_hold,
        one_of_takeover_and_abandonment_wins,
        one_of_late_answer_and_new_request_wins,
        one_of_takeover_and_renewal_wins,
        a_dropped_call_leaves_nothing_locked,
    }
    setting_back {
        a_lease_lasts_no_longer_than_its_length,
        an_owner_keeps_its_key_when_the_clock_is_set_back,
        the_length_of_a_lease_is_that_of_its_last_grant,
        an_abandoned_key_is_free_at_once_wherever_the_clock_is,
        a_shortening_touches_no_other_record,
        a_key_past_its_ttl_is_absent_a_lease_later,
        a_stranded_key_is_resolved_a_lease_later,
        a_shortening_does_not_undo_an_abandonment,
        a_claim_within_a_transaction_shortens_a_lease,
    }
    transacting {
        a_completion_counts_once_its_transaction_is_committed,
        a_completion_that_is_rolled_back_never_was,
        a_replaced_owner_is_fenced_in_a_transaction_too,
        a_completion_and_its_commit_are_one_step,
        a_claim_within_a_transaction_is_seen_once_it_is_committed,
        a_claim_within_a_transaction_that_is_rolled_back_never_was,
        what_is_undone_leaves_the_claim,
        a_claim_within_a_transaction_can_end_held,
        a_claim_within_a_transaction_meets_what_is_committed,
        a_claim_within_a_transaction_starts_an_expired_key_over,
        a_claim_within_a_transaction_never_runs_a_held_key_again,
        a_claim_within_a_transaction_that_is_sent_again_is_granted_again,
        one_of_many_claims_within_transactions_wins,
    }
}
