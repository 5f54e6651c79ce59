//! The detectors, which notice that a guard is missing.

use std::{sync::Arc, time::Duration};

use tokio::task::{JoinError, JoinHandle};

use super::{
    Variant,
    backends::{Backend, reads_from_a_replica},
    damage, ended_keys, interleavings, purge_statements, watch_lists,
};
use crate::hammer::Hammer;
use idempotent_core::{
    conformance::{CASES, TestedStore, follow},
    store::Store,
};

/// How many times a detector runs on a store whose calls take too long.
const LATE_RUNS: usize = 8;
/// The errors of calls that took too long.
const LATE: [&str; 8] = [
    "PoolTimedOut",
    "source: Late",
    "Slow",
    "Elapsed",
    "database is locked",
    "statement timeout",
    "lock timeout",
    "Lock wait timeout",
];
/// The errors of a statement that a server cannot parse.
const SYNTAX_ERRORS: [&str; 2] = ["syntax error", "error in your SQL syntax"];

/// How a mutant is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DetectedBy {
    /// By the hammer.
    Hammer,
    /// By this case of the conformance suite.
    Case(&'static str),
    /// By comparing random histories with the state machine.
    Histories,
    /// Like `Histories`, with a transaction for each claim and each completion.
    HistoriesInTransactions,
    /// By checking the expiry times in the server.
    Expiry,
    /// With damaged records, which no version of this library writes.
    Damage,
    /// With repeated holds that too few replicas have.
    RepeatedHolds,
    /// With a master that became a replica.
    Demotion,
    /// With a replay while another session is writing the record.
    BlockedReplay,
    /// By checking the watch list after each step, and after its entries are corrected.
    WatchLists,
    /// With replays of a large recording and of many small ones, in batches.
    LargeReplay,
    /// With takeovers of a record that changes between the takeover's read and write.
    ConcurrentChange,
    /// With a claim of a key that another session inserts after the claim's statement has begun.
    ConcurrentInsert,
    /// By the server's parser: the removed text only looks like a guard.
    SyntaxError,
    /// By the exhaustive check of all interleavings of a claim with the steps of others.
    Interleavings,
    /// By the exhaustive check of what the statements of a purge change.
    PurgeStatements,
    /// By the exhaustive check of the claims of completed and held keys.
    EndedKeys,
    /// By checking which records a statement returns and locks, while others are locked.
    #[cfg(feature = "mysql")]
    Locks,
    /// Not at all: this exhaustive check, which notices the removal of other guards of the same
    /// file, proves that the store is correct without the guard.
    ProvedBy(&'static Self),
}

/// A check that runs on a store and reports violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Detector(DetectedBy);

const SHORT: Hammer =
    Hammer { keys: 20, active_keys: 4, time_limit: Duration::from_secs(60), ..Hammer::FULL };
/// Short leases; the same with half of the claims in transactions; and leases that expire at once,
/// where only the attempt number distinguishes two takeovers.
const HAMMERS: [Hammer; 3] =
    [SHORT, Hammer { transaction_percent: 50, ..SHORT }, Hammer { lease: Duration::ZERO, ..SHORT }];

impl DetectedBy {
    /// The detector of a mutant whose guard is not redundant.
    pub(super) fn detector(self) -> Option<Detector> {
        self.proof().is_none().then_some(Detector(self))
    }

    /// The proof that a guard is redundant.
    pub(super) fn proof(self) -> Option<Detector> {
        if let Self::ProvedBy(proof) = self { Some(Detector(*proof)) } else { None }
    }

    /// Whether this checks every case that there is.
    pub(super) fn is_exhaustive(self) -> bool {
        matches!(self, Self::Interleavings | Self::EndedKeys)
    }
}

impl Detector {
    /// The detectors that must find nothing on any correct store, whichever guards it has.
    pub(super) fn of_all_guards(backend: &Backend) -> Vec<Self> {
        let in_transactions =
            (!matches!(backend, Backend::Redis(_))).then_some(DetectedBy::HistoriesInTransactions);
        let of_sql = in_transactions
            .into_iter()
            .flat_map(|it| [it, DetectedBy::ConcurrentChange, DetectedBy::Interleavings]);
        [DetectedBy::Hammer, DetectedBy::Histories].into_iter().chain(of_sql).map(Self).collect()
    }

    /// Runs the detector, and returns what it finds. Runs it again if calls to the store took too
    /// long, as they may on a busy machine.
    pub(super) async fn finds(self, backend: &Arc<Backend>, variant: Variant) -> Option<String> {
        let mut finding = None;
        for _ in 0..LATE_RUNS {
            let backend = backend.clone();
            let run = tokio::spawn(async move { self.finds_once(&backend, variant).await });
            finding = match run.await {
                Ok(finding) => finding,
                Err(error) => Some(message(error)),
            };
            let late = |finding: &String| LATE.iter().any(|late| finding.contains(late));
            if !finding.as_ref().is_some_and(late) {
                break;
            }
        }
        finding
    }

    async fn finds_once(self, backend: &Backend, variant: Variant) -> Option<String> {
        let finding = |wrong: bool| wrong.then(|| self.name().to_owned());
        match self.0 {
            DetectedBy::Hammer => run_hammer(backend, variant).await,
            DetectedBy::Case(name) => run_case(backend, variant, name).await,
            DetectedBy::Histories => follow_histories(backend, variant, false).await,
            DetectedBy::HistoriesInTransactions => follow_histories(backend, variant, true).await,
            DetectedBy::Damage => finding(damage::is_accepted(backend, variant).await),
            DetectedBy::RepeatedHolds => finding(backend.holds_wrongly(variant).await),
            DetectedBy::Demotion => finding(reads_from_a_replica(variant).await),
            DetectedBy::BlockedReplay => finding(backend.waits_for_a_writer(variant).await),
            DetectedBy::LargeReplay => finding(backend.batches_wrongly(variant).await),
            DetectedBy::ConcurrentChange => backend.misses_a_change(variant).await,
            DetectedBy::ConcurrentInsert => backend.misses_an_insert(variant).await,
            DetectedBy::Expiry => finding(backend.expires_wrongly(variant).await),
            DetectedBy::SyntaxError => run_hammer(backend, variant).await,
            DetectedBy::Interleavings => interleavings::incorrect_write(backend, variant).await,
            DetectedBy::EndedKeys => ended_keys::difference(backend, variant).await,
            DetectedBy::WatchLists => watch_lists::difference(backend, variant).await,
            DetectedBy::PurgeStatements => {
                purge_statements::incorrect_change(backend, variant).await
            }
            #[cfg(feature = "mysql")]
            DetectedBy::Locks => super::locks::difference(backend, variant).await,
            DetectedBy::ProvedBy(_) => None,
        }
    }

    /// Whether a finding belongs to this detector. A mutant whose statement cannot be parsed proves
    /// nothing about its guard.
    pub(super) fn is_for(self, finding: &str) -> bool {
        let is_syntax_error = SYNTAX_ERRORS.iter().any(|error| finding.contains(error));
        (self.0 == DetectedBy::SyntaxError) == is_syntax_error
    }

    pub(super) fn name(self) -> &'static str {
        match self.0 {
            DetectedBy::Hammer => "the hammer",
            DetectedBy::Case(name) => name,
            DetectedBy::Damage => "damaged records",
            DetectedBy::RepeatedHolds => "holds without replicas",
            DetectedBy::Demotion => "a demoted master",
            DetectedBy::Histories => "random histories",
            DetectedBy::HistoriesInTransactions => "random histories in transactions",
            DetectedBy::Expiry => "expiries",
            DetectedBy::BlockedReplay => "a replay during a write",
            DetectedBy::LargeReplay => "a large replay in a batch",
            DetectedBy::ConcurrentChange => "changes before a takeover",
            DetectedBy::ConcurrentInsert => "an insert during a claim",
            DetectedBy::SyntaxError => "the parser",
            DetectedBy::Interleavings => "all interleavings of a claim",
            DetectedBy::EndedKeys => "claims of ended keys",
            DetectedBy::WatchLists => "watch lists",
            DetectedBy::PurgeStatements => "the statements of a purge",
            #[cfg(feature = "mysql")]
            DetectedBy::Locks => "locked records",
            DetectedBy::ProvedBy(_) => "nothing, as it must be",
        }
    }
}

/// The findings of the hammer.
async fn run_hammer(backend: &Backend, variant: Variant) -> Option<String> {
    for hammer in HAMMERS {
        let fixture = backend.fixture(variant).await;
        if let Err(violation) = hammer.run(&fixture).await {
            return Some(violation.to_string());
        }
    }
    None
}

async fn run_case(backend: &Backend, variant: Variant, name: &str) -> Option<String> {
    let case = CASES.iter().find(|case| case.name() == name).expect("there is a case of this name");
    let subject = backend.subject(variant, false).await;
    panic_of(tokio::spawn(async move { case.run(subject).await })).await
}

async fn follow_histories(
    backend: &Backend,
    variant: Variant,
    in_transactions: bool,
) -> Option<String> {
    for _ in 0..4 {
        let steps = backend.history(fastrand::u64(..));
        let subject = Arc::new(Shared(backend.subject(variant, in_transactions).await));
        let finding =
            panic_of(tokio::spawn(async move { drop(follow(subject, &steps).await) })).await;
        if finding.is_some() {
            return finding;
        }
    }
    None
}

/// The message of a task, if it panicked.
async fn panic_of(task: JoinHandle<()>) -> Option<String> {
    Some(message(task.await.err()?))
}

fn message(error: JoinError) -> String {
    let panic = error.into_panic();
    let message = panic.downcast_ref::<String>().cloned();
    message
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}

struct Shared(Arc<dyn TestedStore>);

#[async_trait::async_trait]
impl TestedStore for Shared {
    fn store(&self) -> &dyn Store {
        self.0.store()
    }

    async fn advance(&self, by: Duration) {
        self.0.advance(by).await;
    }

    async fn set_back(&self, by: Duration) -> bool {
        self.0.set_back(by).await
    }

    fn tick(&self) -> Duration {
        self.0.tick()
    }
}
