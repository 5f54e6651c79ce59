//! The detectors: what notices that a guard is missing.

use std::{sync::Arc, time::Duration};

use tokio::task::{JoinError, JoinHandle};

use super::{
    Variant,
    backends::{Backend, reads_from_a_replica},
};
use crate::hammer::Hammer;
use idempotent_core::{
    conformance::{CASES, Subject, follow},
    store::Store,
};

/// How often a detector runs on a store whose calls take too long.
const LATE_RUNS: usize = 8;
/// The errors of calls that took too long.
const LATE: [&str; 7] = [
    "PoolTimedOut",
    "source: Late",
    "Slow",
    "Elapsed",
    "database is locked",
    "statement timeout",
    "lock timeout",
];

/// What notices a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caught {
    /// Owners that die and owners that return late.
    Hammer,
    /// This case of the conformance suite.
    Case(&'static str),
    /// The comparison with the pure function through random histories.
    Follow,
    /// The same, where each claim and each completion is a transaction.
    FollowWithin,
    /// A check of the expiry times in the server.
    Expiry,
    /// Records that no version of this library writes.
    Damage,
    /// Repeated holds that too few replicas have.
    Held,
    /// A master that became a replica.
    Demotion,
    /// A replay, while another session is writing the record.
    Waits,
    /// Takeovers of a record that changes between the read and the write.
    Meanwhile,
    /// The server, which cannot parse the statement: the removed text only looks like a guard.
    Unparsable,
    /// Nothing could, for this reason: whatever the guard refuses is refused, or has the same
    /// outcome, without it.
    Redundant(&'static str),
}

/// A check that runs on a store and reports violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Detector(Caught);

const SHORT: Hammer =
    Hammer { keys: 20, front: 4, patience: Duration::from_secs(60), ..Hammer::WHOLE };
/// With short leases, of claims in and out of transactions, and with leases that expire at once:
/// there only the attempt number distinguishes two takeovers.
const STRIKES: [Hammer; 3] =
    [SHORT, Hammer { within: 50, ..SHORT }, Hammer { lease: Duration::ZERO, ..SHORT }];

impl Caught {
    /// The detector of a mutant that is not redundant.
    pub(super) fn by(self) -> Option<Detector> {
        if let Self::Redundant(why) = self {
            assert!(!why.is_empty(), "a redundant guard has a reason");
            return None;
        }
        Some(Detector(self))
    }
}

impl Detector {
    /// What every store must pass, whatever guards it has.
    pub(super) fn of_all_guards(backend: &Backend) -> Vec<Self> {
        let within = (!matches!(backend, Backend::Redis(_))).then_some(Caught::FollowWithin);
        let meanwhile = within.map(|_| Caught::Meanwhile);
        [Caught::Hammer, Caught::Follow]
            .into_iter()
            .chain(within)
            .chain(meanwhile)
            .map(Self)
            .collect()
    }

    /// Runs once, and again while calls to the store take too long, as on a busy machine, which is
    /// no finding about its statements. Returns the findings.
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
            Caught::Hammer => hammered(backend, variant).await,
            Caught::Case(name) => fails(backend, variant, name).await,
            Caught::Follow => strays(backend, variant, false).await,
            Caught::FollowWithin => strays(backend, variant, true).await,
            Caught::Damage => finding(backend.takes_damage(variant).await),
            Caught::Held => finding(backend.holds_wrongly(variant).await),
            Caught::Demotion => finding(reads_from_a_replica(variant).await),
            Caught::Waits => finding(backend.waits_for_a_writer(variant).await),
            Caught::Meanwhile => backend.misses_a_change(variant).await,
            Caught::Expiry => finding(backend.expires_wrongly(variant).await),
            Caught::Unparsable => hammered(backend, variant).await,
            Caught::Redundant(_) => None,
        }
    }

    /// Whether a finding belongs to this detector. A mutant whose statement cannot be parsed proves
    /// nothing about its guard.
    pub(super) fn is_for(self, finding: &str) -> bool {
        (self.0 == Caught::Unparsable) == finding.contains("syntax error")
    }

    pub(super) fn name(self) -> &'static str {
        match self.0 {
            Caught::Hammer => "the hammer",
            Caught::Case(name) => name,
            Caught::Damage => "damaged records",
            Caught::Held => "holds without replicas",
            Caught::Demotion => "a demoted master",
            Caught::Follow => "random histories",
            Caught::FollowWithin => "random histories in transactions",
            Caught::Expiry => "expiries",
            Caught::Waits => "a replay beside a writer",
            Caught::Meanwhile => "changes before a takeover",
            Caught::Unparsable => "the parser",
            Caught::Redundant(_) => "nothing, as it must be",
        }
    }
}

/// The findings of the hammer.
async fn hammered(backend: &Backend, variant: Variant) -> Option<String> {
    for hammer in STRIKES {
        let fixture = backend.fixture(variant).await;
        if let Err(violation) = hammer.strike(&fixture).await {
            return Some(violation.to_string());
        }
    }
    None
}

async fn fails(backend: &Backend, variant: Variant, name: &str) -> Option<String> {
    let case = CASES.iter().find(|case| case.name() == name).expect("there is a case of this name");
    let subject = backend.subject(variant, false).await;
    panic_of(tokio::spawn(async move { case.run(subject).await })).await
}

async fn strays(backend: &Backend, variant: Variant, within: bool) -> Option<String> {
    for _ in 0..4 {
        let steps = backend.history(fastrand::u64(..));
        let subject = Arc::new(Shared(backend.subject(variant, within).await));
        let strayed =
            panic_of(tokio::spawn(async move { drop(follow(subject, &steps).await) })).await;
        if strayed.is_some() {
            return strayed;
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

struct Shared(Arc<dyn Subject>);

#[async_trait::async_trait]
impl Subject for Shared {
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
