//! Steps on a key whose connection is cut, and the checks after them.

use idempotent_core::{
    Lease, Policy, RecordId, Runtime, Store,
    protocol::{ClaimOutcome, Fence},
    runtime::{Admission, Attempt, AttemptOutcome, Verdict},
};

use super::{Case, GRANTED, Lane, Step, Way, digest, id, recording, runtime};

/// A lane with its runtimes.
pub(super) struct Running<S> {
    lane: Lane<S>,
    cut: Runtime,
    direct: Runtime,
}

impl<S: Store + Clone> Running<S> {
    pub(super) fn new(lane: Lane<S>) -> Self {
        let (cut, direct) = (runtime(lane.cut.clone()), runtime(lane.direct.clone()));
        Self { lane, cut, direct }
    }

    /// Whether the step had happened, where that can be observed.
    pub(super) async fn take(&self, case: Case) -> Option<bool> {
        // Otherwise the first claim would do so, in the middle of the counted bytes.
        self.cut.check().await.unwrap();
        self.lane.warm().await;
        let happened = match (case.way, case.step) {
            (Way::Repeated, Step::Claim) => Some(self.claim_repeated(case).await),
            (Way::Repeated, Step::Complete) => Some(self.completion_repeated(case).await),
            (Way::Repeated, Step::Release) => Some(self.release_repeated(case).await),
            (Way::Run, _) => {
                self.run(case).await;
                None
            }
            (Way::Unreachable, Step::Claim) => Some(self.claim_unreachable(case).await),
            (Way::Unreachable, Step::Complete) => Some(self.completion_unreachable(case).await),
            (Way::Unreachable, Step::Release) => Some(self.release_unreachable(case).await),
        };
        assert_eq!(self.lane.proxy.cuts(), 1, "{case:?}");
        happened
    }

    async fn claim_repeated(&self, case: Case) -> bool {
        let Self { lane, .. } = self;
        let (Lease { id, owner }, claim) = lane.prepared(case.step).await;
        lane.count(Some(case.plan)).await;
        let error = lane.cut.claim(&id, &claim).await.unwrap_err();
        assert!(error.is_transient(), "{case:?}: {error:?}");
        let happened = lane.happened(case, &id).await;
        if happened {
            assert!(matches!(lane.other(&id).await, ClaimOutcome::InFlight { .. }), "{case:?}");
        }
        lane.proxy.mend();
        assert_eq!(
            lane.again(async || lane.cut.claim(&id, &claim).await).await,
            GRANTED,
            "{case:?}"
        );
        assert!(matches!(lane.other(&id).await, ClaimOutcome::InFlight { .. }), "{case:?}");
        let recording = recording().encode();
        assert_eq!(
            lane.direct.complete(&Lease { id, owner }, &recording).await.unwrap(),
            Fence::Passed,
            "{case:?}"
        );
        happened
    }

    async fn completion_repeated(&self, case: Case) -> bool {
        let Self { lane, .. } = self;
        let (lease, _) = lane.prepared(case.step).await;
        let recording = recording().encode();
        lane.count(Some(case.plan)).await;
        let error = lane.cut.complete(&lease, &recording).await.unwrap_err();
        assert!(error.is_transient(), "{case:?}: {error:?}");
        let happened = lane.happened(case, &lease.id).await;
        match lane.other(&lease.id).await {
            ClaimOutcome::Completed(kept) if happened => assert_eq!(kept, recording),
            ClaimOutcome::InFlight { .. } if !happened => {}
            other => panic!("{case:?}: {other:?}"),
        }
        lane.proxy.mend();
        let again = lane.again(async || lane.cut.complete(&lease, &recording).await).await;
        assert_eq!(again, Fence::Passed, "{case:?}");
        assert_eq!(lane.other(&lease.id).await, ClaimOutcome::Completed(recording), "{case:?}");
        happened
    }

    async fn release_repeated(&self, case: Case) -> bool {
        let Self { lane, .. } = self;
        let (lease, _) = lane.prepared(case.step).await;
        lane.count(Some(case.plan)).await;
        let error = lane.cut.release(&lease).await.unwrap_err();
        assert!(error.is_transient(), "{case:?}: {error:?}");
        let happened = lane.happened(case, &lease.id).await;
        lane.proxy.mend();
        let again = lane.again(async || lane.cut.release(&lease).await).await;
        assert_eq!(again, if happened { Fence::Fenced } else { Fence::Passed }, "{case:?}");
        assert_eq!(lane.other(&lease.id).await, GRANTED, "{case:?}");
        happened
    }

    /// One connection is lost during an attempt, which is unnoticed.
    async fn run(&self, case: Case) {
        let Self { lane, cut, .. } = self;
        let (id, plan) = (id(), Some(case.plan));
        if case.step == Step::Claim {
            lane.count(plan).await;
        }
        let attempt = self.begin(cut, &id, case).await;
        assert!(matches!(self.verdict(&id).await, Verdict::InFlight { .. }), "{case:?}");
        match case.step {
            Step::Claim => {
                assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored, "{case:?}")
            }
            Step::Complete => {
                lane.count(plan).await;
                assert_eq!(
                    attempt.complete(&recording()).await,
                    AttemptOutcome::Stored,
                    "{case:?}"
                );
            }
            Step::Release => {
                lane.count(plan).await;
                let ending = attempt.release().await;
                assert!(
                    matches!(ending, AttemptOutcome::Stored | AttemptOutcome::Deferred),
                    "{case:?}: {ending:?}"
                );
                cut.drained().await;
                let second = self.begin(&self.direct, &id, case).await;
                assert_eq!(second.complete(&recording()).await, AttemptOutcome::Stored, "{case:?}");
            }
        }
        self.assert_done(&id, case).await;
    }

    async fn claim_unreachable(&self, case: Case) -> bool {
        let Self { lane, cut, .. } = self;
        let id = id();
        lane.count(Some(case.plan)).await;
        let error = cut.begin(id, digest(), &Policy::DEFAULT).await.unwrap_err();
        assert!(error.is_transient(), "{case:?}: {error:?}");
        let happened = lane.happened(case, &id).await;
        if happened {
            assert!(matches!(self.verdict(&id).await, Verdict::InFlight { .. }), "{case:?}");
        }
        lane.proxy.mend();
        cut.drained().await;
        // The key was released: no request waits for its lease, and none takes it over.
        let attempt = self.begin(&self.direct, &id, case).await;
        assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored, "{case:?}");
        self.assert_done(&id, case).await;
        happened
    }

    async fn completion_unreachable(&self, case: Case) -> bool {
        let Self { lane, cut, .. } = self;
        let id = id();
        let attempt = self.begin(cut, &id, case).await;
        lane.count(Some(case.plan)).await;
        assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Deferred, "{case:?}");
        let happened = lane.happened(case, &id).await;
        match self.verdict(&id).await {
            Verdict::Completed(kept) if happened => assert_eq!(kept, recording()),
            Verdict::InFlight { .. } if !happened => {}
            other => panic!("{case:?}: {other:?}"),
        }
        lane.proxy.mend();
        cut.drained().await;
        self.assert_done(&id, case).await;
        happened
    }

    async fn release_unreachable(&self, case: Case) -> bool {
        let Self { lane, cut, .. } = self;
        let id = id();
        let attempt = self.begin(cut, &id, case).await;
        lane.count(Some(case.plan)).await;
        assert_eq!(attempt.release().await, AttemptOutcome::Deferred, "{case:?}");
        let happened = lane.happened(case, &id).await;
        // The key is free, and the repeated release must not take it from the next owner.
        let next = if happened { Some(self.begin(&self.direct, &id, case).await) } else { None };
        if next.is_none() {
            assert!(matches!(self.verdict(&id).await, Verdict::InFlight { .. }), "{case:?}");
        }
        lane.proxy.mend();
        cut.drained().await;
        let next = match next {
            Some(next) => next,
            None => self.begin(&self.direct, &id, case).await,
        };
        assert!(matches!(self.verdict(&id).await, Verdict::InFlight { .. }), "{case:?}");
        assert_eq!(next.complete(&recording()).await, AttemptOutcome::Stored, "{case:?}");
        self.assert_done(&id, case).await;
        happened
    }

    /// A first attempt, which must be granted.
    async fn begin(&self, runtime: &Runtime, id: &RecordId, case: Case) -> Attempt {
        match runtime.begin(*id, digest(), &Policy::DEFAULT).await.unwrap() {
            Admission::Proceed(attempt) if attempt.number() == 1 => attempt,
            other => panic!("{case:?}: {other:?}"),
        }
    }

    /// The verdict for another request, which must not run.
    async fn verdict(&self, id: &RecordId) -> Verdict {
        match self.direct.begin(*id, digest(), &Policy::DEFAULT).await.unwrap() {
            Admission::Rejected(verdict) => verdict,
            Admission::Proceed(attempt) => panic!("a second run was granted: {attempt:?}"),
        }
    }

    /// Asserts that every request gets the one response, and that the first attempt produced it.
    async fn assert_done(&self, id: &RecordId, case: Case) {
        assert_eq!(self.verdict(id).await, Verdict::Completed(recording()), "{case:?}");
        assert_eq!(
            self.lane.direct.look_up(id).await.unwrap().unwrap().record.attempt,
            1,
            "{case:?}"
        );
    }
}
