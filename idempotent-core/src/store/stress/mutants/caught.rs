//! What notices that a guard is missing.

use std::{sync::Arc, time::Duration};

use super::{
    Mutant,
    backends::{Backend, reads_from_a_replica},
};
use crate::{
    conformance::{CASES, Subject, follow},
    store::{Store, stress::hammer::Hammer},
};

/// What notices it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caught {
    /// Owners that die and owners that come back.
    Hammer,
    /// This case of the conformance suite.
    Case(&'static str),
    /// The comparison with the pure function through random histories.
    Follow,
    /// The same, where each claim and each completion is a transaction.
    FollowWithin,
    /// A look at what expires in the server, and when.
    Expiry,
    /// Records that no version of this library writes.
    Damage,
    /// Holds that too few replicas have, sent again.
    Held,
    /// A master that became a replica.
    Demotion,
    /// Nothing could, for this reason: whatever it refuses is refused, or comes to the same, without it.
    Redundant(&'static str),
}

const SHORT: Hammer = Hammer { keys: 20, front: 4, patience: Duration::from_secs(20), ..Hammer::WHOLE };
/// Under leases of a moment, of claims in and out of transactions, and under leases that are over at once: there nothing but
/// the owner keeps two takeovers apart.
const STRIKES: [Hammer; 3] = [SHORT, Hammer { within: 50, ..SHORT }, Hammer { lease: Duration::ZERO, ..SHORT }];

impl Caught {
    /// Tries until it does.
    pub(super) async fn notices(self, backend: &Backend, mutant: &Mutant) -> bool {
        loop {
            let noticed = match self {
                Self::Hammer => hammered(backend, Some(mutant)).await.is_some(),
                Self::Case(name) => fails(backend, Some(mutant), name).await,
                Self::Follow => strays(backend, Some(mutant), false).await,
                Self::FollowWithin => strays(backend, Some(mutant), true).await,
                Self::Damage => backend.takes_damage(mutant).await,
                Self::Held => backend.holds_wrongly(Some(mutant)).await,
                Self::Demotion => reads_from_a_replica(Some(mutant)).await,
                Self::Expiry => backend.expires_wrongly(mutant).await,
                Self::Redundant(why) => return !why.is_empty(),
            };
            if noticed {
                return true;
            }
        }
    }

    pub(super) fn by(self) -> &'static str {
        match self {
            Self::Hammer => "the hammer",
            Self::Case(_) => "a case",
            Self::Damage => "damaged records",
            Self::Held => "holds without replicas",
            Self::Demotion => "a demoted master",
            Self::Follow => "random histories",
            Self::FollowWithin => "random histories in transactions",
            Self::Expiry => "expiries",
            Self::Redundant(_) => "nothing, as it must be",
        }
    }
}

/// What the hammer finds.
pub(super) async fn hammered(backend: &Backend, mutant: Option<&Mutant>) -> Option<String> {
    for hammer in STRIKES {
        let ground = backend.ground(mutant).await;
        if let Err(violation) = hammer.strike(&ground).await {
            return Some(violation.to_string());
        }
    }
    None
}

async fn fails(backend: &Backend, mutant: Option<&Mutant>, name: &str) -> bool {
    let case = CASES.iter().find(|case| case.name() == name).expect("there is a case of this name");
    let subject = backend.subject(mutant, false).await;
    tokio::spawn(async move { case.run(subject).await }).await.is_err()
}

async fn strays(backend: &Backend, mutant: Option<&Mutant>, within: bool) -> bool {
    for _ in 0..4 {
        let steps = backend.history(fastrand::u64(..));
        let subject = Arc::new(Shared(backend.subject(mutant, within).await));
        if tokio::spawn(async move { follow(subject, &steps).await }).await.is_err() {
            return true;
        }
    }
    false
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

/// A store with all its guards passes what its mutants fail.
pub(super) async fn assert_sound(backend: &Backend) {
    assert_eq!(hammered(backend, None).await, None);
    assert!(!backend.holds_wrongly(None).await);
    assert!(!reads_from_a_replica(None).await);
}
