//! Runs one case: cuts the connection during a step, and checks the outcome of the key.

use std::{
    cell::Cell,
    fmt::Debug,
    panic::{AssertUnwindSafe, resume_unwind},
    ptr,
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use idempotent_core::{
    Lease, Policy, RecordId, Runtime, Store, StoreError,
    protocol::{ClaimOutcome, Fence, Rejection},
    runtime::{Admission, Attempt, AttemptOutcome, Verdict},
};

use super::{Case, GRANTED, ProxiedStore, Scenario, Step, digest, id, recording, runtime};

/// The store considers a server down that does not respond to a probe. On a busy machine that can
/// happen to each case that takes at least this long, and to those that follow: the server counts
/// as down up to [`PROBED_FOR`] later.
const PROBED_AFTER: Duration = Duration::from_millis(500);
/// The longest time limit of a probe, twice, since another one follows.
const PROBED_FOR: Duration = Duration::from_secs(10);
/// How long a case is run again in which nothing was cut.
const NOT_CUT_FOR: Duration = Duration::from_secs(45);

/// Nothing was cut: on a busy machine a batch may be late, so that its step is executed on a new
/// connection, whose bytes are not counted. While several batches are late, each step is executed
/// alone, which sends fewer bytes.
struct NotCut;

/// Whether the step took effect without a response; `None` if that was not observed.
type Observed = Result<Option<bool>, NotCut>;

/// A store and two runtimes on it: one through the proxy, one with a direct connection.
pub(super) struct CaseRunner<S> {
    store: ProxiedStore<S>,
    proxied: Runtime,
    direct: Runtime,
    /// When a case has ended that took so long that the server may have been probed.
    slow: Cell<Option<Instant>>,
}

impl<S: Store + Clone> CaseRunner<S> {
    pub(super) async fn new(store: ProxiedStore<S>) -> Self {
        let (proxied, direct) = (runtime(store.proxied.clone()), runtime(store.direct.clone()));
        // Otherwise the first claim would run this check, and its bytes would be counted. It uses
        // connections of every kind, so it is not repeated for each case.
        store.retry(async || proxied.check().await).await;
        Self { store, proxied, direct, slow: Cell::default() }
    }

    /// Runs a case; returns whether the step took effect despite the cut, where that can be
    /// observed.
    ///
    /// A step whose batch is cut may be executed on another connection, so a step may fail or
    /// succeed. Its response must agree with the record, and a step that is repeated must have no
    /// second effect.
    pub(super) async fn run(&self, case: Case) -> Option<bool> {
        let begun = Instant::now();
        while begun.elapsed() < NOT_CUT_FOR {
            let since = Instant::now();
            let ended = AssertUnwindSafe(self.run_once(case)).catch_unwind().await;
            if since.elapsed() >= PROBED_AFTER {
                self.slow.set(Some(Instant::now()));
            }
            match ended {
                Ok(Ok(took_effect)) => return took_effect,
                Err(panic) if self.store.proxy.cuts() > 0 => resume_unwind(panic),
                Ok(Err(NotCut)) | Err(_) => {
                    // Nothing may be cut while the next run is prepared.
                    self.store.proxy.count(None);
                    self.proxied.drain().await;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
        panic!("{case:?}: nothing was cut in {NOT_CUT_FOR:?}");
    }

    async fn run_once(&self, case: Case) -> Observed {
        self.store.warm_up().await;
        match (case.scenario, case.step) {
            (Scenario::RepeatedCall, Step::Claim) => self.claim_repeated(case).await,
            (Scenario::RepeatedCall, Step::Complete) => self.completion_repeated(case).await,
            (Scenario::RepeatedCall, Step::Release) => self.release_repeated(case).await,
            (Scenario::LostConnection, _) => self.lost_connection(case).await.map(|()| None),
            (Scenario::Outage, Step::Claim) => self.claim_in_outage(case).await,
            (Scenario::Outage, Step::Complete) => self.completion_in_outage(case).await,
            (Scenario::Outage, Step::Release) => self.release_in_outage(case).await,
        }
    }

    fn cut(&self) -> Result<(), NotCut> {
        if self.store.proxy.cuts() > 0 { Ok(()) } else { Err(NotCut) }
    }

    async fn claim_repeated(&self, case: Case) -> Observed {
        let Self { store, .. } = self;
        let (Lease { id, owner }, claim) = store.prepare(case.step).await;
        store.count(Some(case.plan)).await;
        let first = store.proxied.claim(&id, &claim).await;
        self.cut()?;
        let took_effect = store.took_effect(case, &id).await;
        let lost = assert_agrees(first, &GRANTED, took_effect, case);
        if took_effect {
            assert!(
                matches!(
                    store.competing_claim(&id).await,
                    ClaimOutcome::Rejected(Rejection::InFlight { .. })
                ),
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
            matches!(
                store.competing_claim(&id).await,
                ClaimOutcome::Rejected(Rejection::InFlight { .. })
            ),
            "{case:?}"
        );
        let recording = bytes::Bytes::from(recording());
        let lease = Lease { id, owner };
        let completed = store.retry(async || store.direct.complete(&lease, &recording).await).await;
        assert_eq!(completed, Fence::Passed, "{case:?}");
        Ok(lost.then_some(took_effect))
    }

    async fn completion_repeated(&self, case: Case) -> Observed {
        let Self { store, .. } = self;
        let (lease, _) = store.prepare(case.step).await;
        let recording = bytes::Bytes::from(recording());
        store.count(Some(case.plan)).await;
        let first = store.proxied.complete(&lease, &recording).await;
        self.cut()?;
        let took_effect = store.took_effect(case, &lease.id).await;
        let lost = assert_agrees(first, &Fence::Passed, took_effect, case);
        match store.competing_claim(&lease.id).await {
            ClaimOutcome::Rejected(Rejection::InFlight { .. }) if !took_effect => {}
            // Between the two reads, the server may finish a completion without a client.
            ClaimOutcome::Rejected(Rejection::Completed(kept)) => assert_eq!(kept, recording),
            other => panic!("{case:?}: {other:?}"),
        }
        store.proxy.end_outage();
        let again = store.retry(async || store.proxied.complete(&lease, &recording).await).await;
        assert_eq!(again, Fence::Passed, "{case:?}");
        assert_eq!(
            store.competing_claim(&lease.id).await,
            ClaimOutcome::Rejected(Rejection::Completed(recording)),
            "{case:?}"
        );
        Ok(lost.then_some(took_effect))
    }

    async fn release_repeated(&self, case: Case) -> Observed {
        let Self { store, .. } = self;
        let (lease, _) = store.prepare(case.step).await;
        store.count(Some(case.plan)).await;
        let first = store.proxied.release(&lease).await;
        self.cut()?;
        let took_effect = store.took_effect(case, &lease.id).await;
        let lost = assert_agrees(first, &Fence::Passed, took_effect, case);
        store.proxy.end_outage();
        let again = store.retry(async || store.proxied.release(&lease).await).await;
        // The server may have finished the first release only now.
        assert!(again == Fence::Fenced || !took_effect, "{case:?}");
        assert_eq!(store.competing_claim(&lease.id).await, GRANTED, "{case:?}");
        Ok(lost.then_some(took_effect))
    }

    /// One connection is lost during an attempt. The runtime reconnects and the attempt succeeds.
    async fn lost_connection(&self, case: Case) -> Result<(), NotCut> {
        let Self { store, proxied, .. } = self;
        let (id, plan, since) = (id(), Some(case.plan), Instant::now());
        if case.step == Step::Claim {
            store.count(plan).await;
        }
        let attempt = self.begin(proxied, &id, case).await;
        if case.step == Step::Claim {
            self.cut()?;
        }
        assert!(
            matches!(self.verdict(&id).await, Verdict::Rejected(Rejection::InFlight { .. })),
            "{case:?}"
        );
        if case.step == Step::Complete {
            store.count(plan).await;
        }
        if case.step == Step::Release {
            store.count(plan).await;
            let ending = attempt.release().await;
            self.cut()?;
            assert!(
                matches!(ending, AttemptOutcome::Stored | AttemptOutcome::Deferred),
                "{case:?}: {ending:?}"
            );
            proxied.drain().await;
            let second = self.begin(&self.direct, &id, case).await;
            self.complete(second, &self.direct, since, case).await;
        } else {
            self.complete(attempt, proxied, since, case).await;
            self.cut()?;
        }
        self.assert_done(&id, case).await;
        Ok(())
    }

    async fn claim_in_outage(&self, case: Case) -> Observed {
        let Self { store, proxied, .. } = self;
        let (id, since) = (id(), Instant::now());
        store.count(Some(case.plan)).await;
        let begun = proxied.begin(id, digest(), &Policy::DEFAULT).await;
        self.cut()?;
        let error = match begun {
            Ok(Admission::Proceed(attempt)) if attempt.number() == 1 => {
                assert!(
                    matches!(
                        self.verdict(&id).await,
                        Verdict::Rejected(Rejection::InFlight { .. })
                    ),
                    "{case:?}"
                );
                store.proxy.end_outage();
                // The runtime may have to reconnect, or defer the completion.
                attempt.complete(&recording()).await;
                proxied.drain().await;
                self.assert_done(&id, case).await;
                return Ok(None);
            }
            Ok(other) => panic!("{case:?}: {other:?}"),
            Err(error) => error,
        };
        assert!(error.is_transient(), "{case:?}: {error:?}");
        let took_effect = store.took_effect(case, &id).await;
        if took_effect {
            assert!(
                matches!(self.verdict(&id).await, Verdict::Rejected(Rejection::InFlight { .. })),
                "{case:?}"
            );
        }
        store.proxy.end_outage();
        proxied.drain().await;
        // The key was released: the next claim is a first attempt, neither a wait nor a takeover.
        let attempt = self.begin(&self.direct, &id, case).await;
        self.complete(attempt, &self.direct, since, case).await;
        self.assert_done(&id, case).await;
        Ok(Some(took_effect))
    }

    async fn completion_in_outage(&self, case: Case) -> Observed {
        let Self { store, proxied, .. } = self;
        let id = id();
        let attempt = self.begin(proxied, &id, case).await;
        store.count(Some(case.plan)).await;
        let ending = attempt.complete(&recording()).await;
        self.cut()?;
        let took_effect = store.took_effect(case, &id).await;
        let lost = assert_ending_agrees(&ending, took_effect, case);
        match self.verdict(&id).await {
            Verdict::Rejected(Rejection::InFlight { .. }) if !took_effect => {}
            Verdict::Rejected(Rejection::Completed(kept)) => assert_eq!(kept, recording()),
            other => panic!("{case:?}: {other:?}"),
        }
        store.proxy.end_outage();
        proxied.drain().await;
        self.assert_done(&id, case).await;
        Ok(lost.then_some(took_effect))
    }

    async fn release_in_outage(&self, case: Case) -> Observed {
        let Self { store, proxied, .. } = self;
        let (id, since) = (id(), Instant::now());
        let attempt = self.begin(proxied, &id, case).await;
        store.count(Some(case.plan)).await;
        let ending = attempt.release().await;
        self.cut()?;
        let took_effect = store.took_effect(case, &id).await;
        let lost = assert_ending_agrees(&ending, took_effect, case);
        // If the release took effect, the key is free; the repeated release must not take the key
        // from its next owner.
        let next = if took_effect { Some(self.begin(&self.direct, &id, case).await) } else { None };
        store.proxy.end_outage();
        proxied.drain().await;
        let next = match next {
            Some(next) => next,
            None => self.begin(&self.direct, &id, case).await,
        };
        assert!(
            matches!(self.verdict(&id).await, Verdict::Rejected(Rejection::InFlight { .. })),
            "{case:?}"
        );
        self.complete(next, &self.direct, since, case).await;
        self.assert_done(&id, case).await;
        Ok(lost.then_some(took_effect))
    }

    /// Whether the store may consider the server down, in a case that has begun at `since`.
    fn may_be_down(&self, since: Instant) -> bool {
        since.elapsed() >= PROBED_AFTER
            || self.slow.get().is_some_and(|slow| slow.elapsed() < PROBED_FOR)
    }

    /// Begins a first attempt, which must be granted at once, unless the server may count as down.
    async fn begin(&self, runtime: &Runtime, id: &RecordId, case: Case) -> Attempt {
        let (since, mut failed) = (Instant::now(), false);
        let may_fail = || ptr::eq(runtime, &self.direct) || self.may_be_down(since);
        loop {
            match runtime.begin(*id, digest(), &Policy::DEFAULT).await {
                Ok(Admission::Proceed(attempt)) if attempt.number() == 1 => return attempt,
                Err(error) if error.is_transient() && may_fail() => failed = true,
                // The claim that has failed is released in the background.
                Ok(Admission::Rejected(Verdict::Rejected(Rejection::InFlight { .. })))
                    if failed => {}
                other => panic!("{case:?}: {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Completes an attempt, which must be stored at once, unless the server may count as down.
    async fn complete(&self, attempt: Attempt, runtime: &Runtime, since: Instant, case: Case) {
        let ending = attempt.complete(&recording()).await;
        let deferred = ending == AttemptOutcome::Deferred && self.may_be_down(since);
        assert!(ending == AttemptOutcome::Stored || deferred, "{case:?}: {ending:?}");
        runtime.drain().await;
    }

    /// The verdict for a second request with the key, which must not run.
    async fn verdict(&self, id: &RecordId) -> Verdict {
        let begin = async || self.direct.begin(*id, digest(), &Policy::DEFAULT).await;
        match self.store.retry(begin).await {
            Admission::Rejected(verdict) => verdict,
            Admission::Proceed(attempt) => panic!("a second run was granted: {attempt:?}"),
        }
    }

    /// Asserts that another request gets the recorded response, and that the first attempt
    /// recorded it.
    async fn assert_done(&self, id: &RecordId, case: Case) {
        assert_eq!(
            self.verdict(id).await,
            Verdict::Rejected(Rejection::Completed(recording())),
            "{case:?}"
        );
        let found = self.store.retry(async || self.store.direct.look_up(id).await).await;
        assert_eq!(found.unwrap().record.attempt, 1, "{case:?}");
    }
}

/// Asserts that the response to a step agrees with the record; returns whether the step failed.
fn assert_agrees<T: Debug + PartialEq>(
    response: Result<T, StoreError>,
    expected: &T,
    took_effect: bool,
    case: Case,
) -> bool {
    match response {
        Ok(outcome) => {
            assert_eq!(&outcome, expected, "{case:?}");
            assert!(took_effect, "{case:?}: {outcome:?}, but nothing was stored");
            false
        }
        Err(error) => {
            assert!(error.is_transient(), "{case:?}: {error:?}");
            true
        }
    }
}

/// Asserts that the outcome of an attempt agrees with the record; returns whether its end failed.
fn assert_ending_agrees(ending: &AttemptOutcome, took_effect: bool, case: Case) -> bool {
    match ending {
        AttemptOutcome::Stored => {
            assert!(took_effect, "{case:?}: nothing was stored");
            false
        }
        AttemptOutcome::Deferred => true,
        other => panic!("{case:?}: {other:?}"),
    }
}
