//! Fixtures of the cases.

use std::{borrow::Borrow, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::task::JoinSet;

use super::TestedStore;
use crate::{
    fingerprint::Fingerprint,
    history::Kind,
    lease::{Lease, OwnerToken},
    policy::Abandoned,
    protocol::{
        Actor, AuditAction, AuditEntry, AuditedState, Claim, ClaimOutcome, Fence, Note, Rejection,
        Removal, RenewOutcome, Renewal, Replacement, Resolution, ResolveOutcome,
    },
    record::Record,
    record_id::RecordId,
    scope::Principal,
    short_text::ShortText,
    store::Store,
};

/// The number of concurrent callers in a race.
pub(super) const MANY: usize = 64;

/// How many pages no list has.
pub(super) const TOO_MANY_PAGES: usize = 10_000;

/// The subject of one case.
#[derive(Clone)]
pub(super) struct Fixture(Arc<dyn TestedStore>);

impl Fixture {
    pub(super) fn new(subject: Arc<dyn TestedStore>) -> Self {
        Self(subject)
    }

    pub(super) fn store(&self) -> &dyn Store {
        self.0.store()
    }

    pub(super) fn tick(&self) -> Duration {
        self.0.tick()
    }

    /// A key that no other case uses.
    pub(super) fn key(&self) -> KeyUnderTest {
        let [one, two] = [owner(), owner()];
        let mut id = [0; 32];
        id.iter_mut()
            .zip(one.as_bytes().iter().chain(two.as_bytes()))
            .for_each(|(to, from)| *to = *from);
        KeyUnderTest { fixture: self.clone(), id: RecordId::from_bytes(id) }
    }

    /// A claim by a new owner, with a lease of one tick and a ttl of four.
    pub(super) fn request(&self) -> Claim {
        Claim {
            fingerprint: fingerprint(1),
            owner: owner(),
            lease: self.tick(),
            ttl: self.tick() * 4,
            abandoned: Abandoned::Retry,
            principal: Some(Principal::from_bytes([7; 16])),
            operation: text("POST /v1/payments"),
        }
    }

    pub(super) fn hold_request(&self) -> Claim {
        Claim { abandoned: Abandoned::Hold, ..self.request() }
    }

    pub(super) fn other_request(&self) -> Claim {
        Claim { fingerprint: fingerprint(2), ..self.request() }
    }

    /// Lets every lease of one tick expire.
    pub(super) async fn expire_leases(&self) {
        self.0.advance(self.tick() * 3 / 2).await;
    }

    /// Lets every record with a ttl of four ticks expire.
    pub(super) async fn expire_records(&self) {
        self.0.advance(self.tick() * 9 / 2).await;
    }

    pub(super) async fn advance_a_tick(&self) {
        self.0.advance(self.tick()).await;
    }

    pub(super) async fn advance_half_a_tick(&self) {
        self.0.advance(self.tick() / 2).await;
    }

    /// Sets the clock back by a number of ticks, and returns whether it can be set back.
    pub(super) async fn set_back(&self, ticks: u32) -> bool {
        self.0.set_back(self.tick() * ticks).await
    }

    /// Purges until no expired record is left.
    pub(super) async fn purge_all(&self) -> u64 {
        let mut removed = 0;
        loop {
            match self.store().purge(1_000).await.unwrap() {
                0 => return removed,
                more => removed += more,
            }
        }
    }
}

pub(super) fn fingerprint(of: u8) -> Fingerprint {
    Fingerprint::from_bytes([of; Fingerprint::BYTES])
}

pub(super) fn owner() -> OwnerToken {
    OwnerToken::random().unwrap()
}

pub(super) fn recording(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

pub(super) fn text(text: &str) -> ShortText {
    ShortText::new(text).unwrap()
}

/// Runs many instances of a future concurrently.
pub(super) async fn many<F>(make: impl Fn() -> F) -> Vec<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    (0..MANY).map(|_| make()).collect::<JoinSet<_>>().join_all().await
}

pub(super) fn granted(attempt: u32) -> ClaimOutcome {
    ClaimOutcome::Granted { attempt }
}

/// The outcome of a claim of an operation that was completed with this recording.
pub(super) fn replay_of(recording: Bytes) -> ClaimOutcome {
    ClaimOutcome::Rejected(Rejection::Completed(recording))
}

/// Asserts that one claim was granted and that the others found it in flight.
pub(super) fn assert_one_winner(outcomes: &[ClaimOutcome], attempt: u32) {
    let in_flight = |outcome: &&ClaimOutcome| {
        matches!(outcome, ClaimOutcome::Rejected(Rejection::InFlight { .. }))
    };
    assert_eq!(
        outcomes.iter().filter(|outcome| **outcome == granted(attempt)).count(),
        1,
        "{outcomes:?}"
    );
    assert_eq!(outcomes.iter().filter(in_flight).count(), outcomes.len() - 1, "{outcomes:?}");
}

/// A key, and the calls for it.
#[derive(Clone)]
pub(super) struct KeyUnderTest {
    fixture: Fixture,
    pub(super) id: RecordId,
}

impl KeyUnderTest {
    pub(super) async fn claim(&self, claim: &Claim) -> ClaimOutcome {
        self.fixture.store().claim(&self.id, claim).await.unwrap()
    }

    /// Claims the key, and expects the first attempt to be granted.
    pub(super) async fn claimed(&self, claim: impl Borrow<Claim>) -> Lease {
        let claim = claim.borrow();
        assert_eq!(self.claim(claim).await, granted(1));
        self.lease(claim.owner)
    }

    pub(super) fn lease(&self, owner: OwnerToken) -> Lease {
        Lease { id: self.id, owner }
    }

    /// Claims the key with `hold`, and abandons it.
    pub(super) async fn held(&self) -> Lease {
        let lease = self.claimed(self.fixture.hold_request()).await;
        assert_eq!(self.abandon(&lease, Abandoned::Hold).await, Fence::Passed);
        lease
    }

    /// Claims and completes the key.
    pub(super) async fn completed(&self, recording: &Bytes) -> Lease {
        let lease = self.claimed(self.fixture.request()).await;
        assert_eq!(self.complete(&lease, recording).await, Fence::Passed);
        lease
    }

    pub(super) async fn note(&self, lease: &Lease, note: &Note) -> Fence {
        self.fixture.store().note(lease, note).await.unwrap()
    }

    pub(super) async fn complete(&self, lease: &Lease, recording: &Bytes) -> Fence {
        self.fixture.store().complete(lease, recording).await.unwrap()
    }

    pub(super) async fn release(&self, lease: &Lease) -> Fence {
        self.fixture.store().release(lease).await.unwrap()
    }

    /// Renews until the outcome is known: another session may have the record locked for a moment.
    pub(super) async fn renew(&self, lease: &Lease, extend: Duration) -> Fence {
        for _ in 0..1_000 {
            let outcomes =
                self.fixture.store().renew(&[Renewal { lease: *lease, extend }]).await.unwrap();
            match outcomes.as_slice() {
                [RenewOutcome::Renewed] => return Fence::Passed,
                [RenewOutcome::Fenced] => return Fence::Fenced,
                [RenewOutcome::Unknown] => tokio::time::sleep(Duration::from_millis(5)).await,
                other => unreachable!("one renewal has the outcomes {other:?}"),
            }
        }
        unreachable!("the record stays locked")
    }

    pub(super) async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Fence {
        self.fixture.store().abandon(lease, policy).await.unwrap()
    }

    pub(super) async fn resolve(
        &self,
        seen: &OwnerToken,
        resolution: Resolution,
    ) -> ResolveOutcome {
        let action = match resolution {
            Resolution::Complete(_) => AuditAction::Complete,
            Resolution::Release => AuditAction::Release,
        };
        let audit = self.audit(action);
        self.fixture.store().resolve(&self.id, seen, &resolution, &audit).await.unwrap()
    }

    /// An entry of the log of operators' decisions about this key.
    pub(super) fn audit(&self, action: AuditAction) -> AuditEntry {
        let actor = Actor::new("ada", "as the bank's books say");
        let mut audit = AuditEntry::new(action, self.id, AuditedState::Held, actor);
        audit.operation = text("POST /v1/payments");
        audit
    }

    /// Removes the record; `None` if the store has no administration, as for the next two.
    pub(super) async fn remove(&self, removal: &Removal) -> Option<bool> {
        let administration = self.fixture.store().administration()?;
        let audit = self.audit(AuditAction::Forget);
        Some(administration.remove(&self.id, removal, &audit).await.unwrap())
    }

    pub(super) async fn replace(&self, replacement: &Replacement) -> Option<bool> {
        let administration = self.fixture.store().administration()?;
        Some(administration.replace(&self.id, replacement).await.unwrap())
    }

    pub(super) async fn append_history(&self, kind: Kind) -> Option<()> {
        let administration = self.fixture.store().administration()?;
        administration.append_history(&self.id, kind).await.unwrap();
        Some(())
    }

    /// The kinds of the entries of the record's history.
    pub(super) async fn kinds(&self) -> Vec<Kind> {
        let record = self.record().await.unwrap();
        record.history.entries().map(|entry| entry.kind).collect()
    }

    pub(super) async fn record(&self) -> Option<Record> {
        self.fixture.store().look_up(&self.id).await.unwrap().map(|found| found.record)
    }

    /// Asserts that every call with this token is fenced and changes nothing.
    pub(super) async fn assert_fenced(&self, owner: OwnerToken) {
        let (lease, before) = (self.lease(owner), self.record().await);
        assert_eq!(self.complete(&lease, &recording("stale")).await, Fence::Fenced);
        assert_eq!(self.release(&lease).await, Fence::Fenced);
        let note = Note { step: recording("stale"), ..Note::reference(text("stale")) };
        assert_eq!(self.note(&lease, &note).await, Fence::Fenced);
        assert_eq!(self.note(&lease, &Note::hold()).await, Fence::Fenced);
        assert_eq!(self.renew(&lease, self.fixture.tick()).await, Fence::Fenced);
        assert_eq!(self.abandon(&lease, Abandoned::Retry).await, Fence::Fenced);
        assert_eq!(self.abandon(&lease, Abandoned::Hold).await, Fence::Fenced);
        assert_eq!(self.record().await, before);
    }

    /// Asserts that another request is a mismatch and changes nothing.
    pub(super) async fn assert_mismatch(&self) {
        let before = self.record().await;
        for request in [
            self.fixture.other_request(),
            Claim { abandoned: Abandoned::Hold, ..self.fixture.other_request() },
        ] {
            assert_eq!(
                self.claim(&request).await,
                ClaimOutcome::Rejected(Rejection::Mismatch { recorded: fingerprint(1) })
            );
        }
        assert_eq!(self.record().await, before);
    }
}
