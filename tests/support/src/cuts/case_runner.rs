//! Runs one case: cuts the connection during a step, and checks the outcome of the key.

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures_util::FutureExt as _;
use idempotent_core::{
    Lease, Policy, RecordId, Runtime, Store,
    protocol::{ClaimOutcome, Fence},
    runtime::{Admission, Attempt, AttemptOutcome, Verdict},
};

use super::{Case, GRANTED, ProxiedStore, Scenario, Step, digest, id, recording, runtime};

/// How often a case is run again in which nothing was cut.
const RUNS: usize = 3;

/// A store and two runtimes on it: one through the proxy, one with a direct connection.
pub(super) struct CaseRunner<S> {
    store: ProxiedStore<S>,
    proxied: Runtime,
    direct: Runtime,
}

impl<S: Store + Clone> CaseRunner<S> {
    pub(super) fn new(store: ProxiedStore<S>) -> Self {
        let (proxied, direct) = (runtime(store.proxied.clone()), runtime(store.direct.clone()));
        Self { store, proxied, direct }
    }

    /// Runs a case; returns whether the step took effect despite the cut, where that can be
    /// observed.
    ///
    /// On a busy machine a batch may be late, so that the step is executed on a new connection, and
    /// nothing is cut. Then the case is run again.
    pub(super) async fn run(&self, case: Case) -> Option<bool> {
        for _ in 0..RUNS {
            match AssertUnwindSafe(self.run_once(case)).catch_unwind().await {
                Ok(took_effect) => return took_effect,
                Err(panic) if self.store.proxy.cuts() > 0 => resume_unwind(panic),
                // Nothing may be cut while the next run is prepared.
                Err(_) => self.store.proxy.count(None),
            }
        }
        self.run_once(case).await
    }

    async fn run_once(&self, case: Case) -> Option<bool> {
        // Otherwise the first claim would run this check, and its bytes would be counted.
        self.proxied.check().await.unwrap();
        self.store.warm_up().await;
        let took_effect = match (case.scenario, case.step) {
            (Scenario::RepeatedCall, Step::Claim) => Some(self.claim_repeated(case).await),
            (Scenario::RepeatedCall, Step::Complete) => Some(self.completion_repeated(case).await),
            (Scenario::RepeatedCall, Step::Release) => Some(self.release_repeated(case).await),
            (Scenario::LostConnection, _) => {
                self.lost_connection(case).await;
                None
            }
            (Scenario::Outage, Step::Claim) => Some(self.claim_in_outage(case).await),
            (Scenario::Outage, Step::Complete) => Some(self.completion_in_outage(case).await),
            (Scenario::Outage, Step::Release) => Some(self.release_in_outage(case).await),
        };
        assert_eq!(self.store.proxy.cuts(), 1, "{case:?}");
        took_effect
    }

    async fn claim_repeated(&self, case: Case) -> bool {
        let Self { store, .. } = self;
        let (Lease { id, owner }, claim) = store.prepare(case.step).await;
        store.count(Some(case.plan)).await;
        let error = store.proxied.claim(&id, &claim).await.unwrap_err();
        assert!(error.is_transient(), "{case:?}: {error:?}");
        let took_effect = store.took_effect(case, &id).await;
        if took_effect {
            assert!(
                matches!(store.competing_claim(&id).await, ClaimOutcome::InFlight { .. }),
                "{case:?}"
            );
        }
        store.proxy.end_outage();
        assert_eq!(
            store.retry(async || store.proxied.claim(&id, &claim).await).await,
            GRANTED,
            "{case:?}"
        );
        assert!(
            matches!(store.competing_claim(&id).await, ClaimOutcome::InFlight { .. }),
            "{case:?}"
        );
        let recording = recording().encode();
        assert_eq!(
            store.direct.complete(&Lease { id, owner }, &recording).await.unwrap(),
            Fence::Passed,
            "{case:?}"
        );
        took_effect
    }

    async fn completion_repeated(&self, case: Case) -> bool {
        let Self { store, .. } = self;
        let (lease, _) = store.prepare(case.step).await;
        let recording = recording().encode();
        store.count(Some(case.plan)).await;
        let error = store.proxied.complete(&lease, &recording).await.unwrap_err();
        assert!(error.is_transient(), "{case:?}: {error:?}");
        let took_effect = store.took_effect(case, &lease.id).await;
        match store.competing_claim(&lease.id).await {
            ClaimOutcome::Completed(kept) if took_effect => assert_eq!(kept, recording),
            ClaimOutcome::InFlight { .. } if !took_effect => {}
            other => panic!("{case:?}: {other:?}"),
        }
        store.proxy.end_outage();
        let again = store.retry(async || store.proxied.complete(&lease, &recording).await).await;
        assert_eq!(again, Fence::Passed, "{case:?}");
        assert_eq!(
            store.competing_claim(&lease.id).await,
            ClaimOutcome::Completed(recording),
            "{case:?}"
        );
        took_effect
    }

    async fn release_repeated(&self, case: Case) -> bool {
        let Self { store, .. } = self;
        let (lease, _) = store.prepare(case.step).await;
        store.count(Some(case.plan)).await;
        let error = store.proxied.release(&lease).await.unwrap_err();
        assert!(error.is_transient(), "{case:?}: {error:?}");
        let took_effect = store.took_effect(case, &lease.id).await;
        store.proxy.end_outage();
        let again = store.retry(async || store.proxied.release(&lease).await).await;
        assert_eq!(again, if took_effect { Fence::Fenced } else { Fence::Passed }, "{case:?}");
        assert_eq!(store.competing_claim(&lease.id).await, GRANTED, "{case:?}");
        took_effect
    }

    /// One connection is lost during an attempt. The runtime reconnects and the attempt succeeds.
    async fn lost_connection(&self, case: Case) {
        let Self { store, proxied, .. } = self;
        let (id, plan) = (id(), Some(case.plan));
        if case.step == Step::Claim {
            store.count(plan).await;
        }
        let attempt = self.begin(proxied, &id, case).await;
        assert!(matches!(self.verdict(&id).await, Verdict::InFlight { .. }), "{case:?}");
        match case.step {
            Step::Claim => {
                assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored, "{case:?}")
            }
            Step::Complete => {
                store.count(plan).await;
                assert_eq!(
                    attempt.complete(&recording()).await,
                    AttemptOutcome::Stored,
                    "{case:?}"
                );
            }
            Step::Release => {
                store.count(plan).await;
                let ending = attempt.release().await;
                assert!(
                    matches!(ending, AttemptOutcome::Stored | AttemptOutcome::Deferred),
                    "{case:?}: {ending:?}"
                );
                proxied.drained().await;
                let second = self.begin(&self.direct, &id, case).await;
                assert_eq!(second.complete(&recording()).await, AttemptOutcome::Stored, "{case:?}");
            }
        }
        self.assert_done(&id, case).await;
    }

    async fn claim_in_outage(&self, case: Case) -> bool {
        let Self { store, proxied, .. } = self;
        let id = id();
        store.count(Some(case.plan)).await;
        let error = proxied.begin(id, digest(), &Policy::DEFAULT).await.unwrap_err();
        assert!(error.is_transient(), "{case:?}: {error:?}");
        let took_effect = store.took_effect(case, &id).await;
        if took_effect {
            assert!(matches!(self.verdict(&id).await, Verdict::InFlight { .. }), "{case:?}");
        }
        store.proxy.end_outage();
        proxied.drained().await;
        // The key was released: the next claim is a first attempt, neither a wait nor a takeover.
        let attempt = self.begin(&self.direct, &id, case).await;
        assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored, "{case:?}");
        self.assert_done(&id, case).await;
        took_effect
    }

    async fn completion_in_outage(&self, case: Case) -> bool {
        let Self { store, proxied, .. } = self;
        let id = id();
        let attempt = self.begin(proxied, &id, case).await;
        store.count(Some(case.plan)).await;
        assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Deferred, "{case:?}");
        let took_effect = store.took_effect(case, &id).await;
        match self.verdict(&id).await {
            Verdict::Completed(kept) if took_effect => assert_eq!(kept, recording()),
            Verdict::InFlight { .. } if !took_effect => {}
            other => panic!("{case:?}: {other:?}"),
        }
        store.proxy.end_outage();
        proxied.drained().await;
        self.assert_done(&id, case).await;
        took_effect
    }

    async fn release_in_outage(&self, case: Case) -> bool {
        let Self { store, proxied, .. } = self;
        let id = id();
        let attempt = self.begin(proxied, &id, case).await;
        store.count(Some(case.plan)).await;
        assert_eq!(attempt.release().await, AttemptOutcome::Deferred, "{case:?}");
        let took_effect = store.took_effect(case, &id).await;
        // If the release took effect, the key is free; the repeated release must not take the key
        // from its next owner.
        let next = if took_effect { Some(self.begin(&self.direct, &id, case).await) } else { None };
        if next.is_none() {
            assert!(matches!(self.verdict(&id).await, Verdict::InFlight { .. }), "{case:?}");
        }
        store.proxy.end_outage();
        proxied.drained().await;
        let next = match next {
            Some(next) => next,
            None => self.begin(&self.direct, &id, case).await,
        };
        assert!(matches!(self.verdict(&id).await, Verdict::InFlight { .. }), "{case:?}");
        assert_eq!(next.complete(&recording()).await, AttemptOutcome::Stored, "{case:?}");
        self.assert_done(&id, case).await;
        took_effect
    }

    /// Begins a first attempt, which must be granted.
    async fn begin(&self, runtime: &Runtime, id: &RecordId, case: Case) -> Attempt {
        match runtime.begin(*id, digest(), &Policy::DEFAULT).await.unwrap() {
            Admission::Proceed(attempt) if attempt.number() == 1 => attempt,
            other => panic!("{case:?}: {other:?}"),
        }
    }

    /// The verdict for a second request with the key, which must not run.
    async fn verdict(&self, id: &RecordId) -> Verdict {
        match self.direct.begin(*id, digest(), &Policy::DEFAULT).await.unwrap() {
            Admission::Rejected(verdict) => verdict,
            Admission::Proceed(attempt) => panic!("a second run was granted: {attempt:?}"),
        }
    }

    /// Asserts that another request gets the recorded response, and that the first attempt
    /// recorded it.
    async fn assert_done(&self, id: &RecordId, case: Case) {
        assert_eq!(self.verdict(id).await, Verdict::Completed(recording()), "{case:?}");
        assert_eq!(
            self.store.direct.look_up(id).await.unwrap().unwrap().record.attempt,
            1,
            "{case:?}"
        );
    }
}
