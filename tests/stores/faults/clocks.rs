//! A store's clock that is set forward or back by hours, while operations are in flight.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use idempotent_core::{
    Abandoned, FingerprintKeys, Lease, OwnerToken, Policy, RecordId, Runtime, ShortText,
    StoreError,
    conformance::TestedStore,
    protocol::{
        AuditEntry, Claim, ClaimOutcome, Fence, Rejection, RenewOutcome, Renewal, Resolution,
        ResolveOutcome, ResumablePage, Snapshot,
    },
    runtime::{Admission, AttemptOutcome, RuntimeOptions, Verdict},
    store::Store,
};
use test_support::{
    WAIT_LIMIT,
    cuts::{digest, id, recording},
    subjects::{
        memory::ShiftedMemory, postgres::ShiftedPostgres, redis::TestServer, sqlite::ShiftedSqlite,
    },
};
use tokio::time::{Instant, sleep};

use super::{proceed, rejected};

const LEASE: Duration = Duration::from_millis(1_500);
const POLICY: Policy = Policy::DEFAULT.with_lease(LEASE);
/// Less than the ttl.
const STEP: Duration = Duration::from_secs(5 * 3600);
/// How often the owner must have renewed its lease after the step.
const RENEWALS: usize = 4;

/// The store of a subject, which the runtimes of two processes share.
#[derive(Clone)]
struct Shared(Arc<dyn TestedStore>);

#[async_trait]
impl Store for Shared {
    async fn migrate(&self) -> Result<(), StoreError> {
        self.0.store().migrate().await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.0.store().check().await
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        self.0.store().claim(id, claim).await
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        self.0.store().renew(leases).await
    }

    async fn note(
        &self,
        lease: &Lease,
        note: &idempotent_core::protocol::Note,
    ) -> Result<Fence, StoreError> {
        self.0.store().note(lease, note).await
    }
    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        self.0.store().resumable(operation, after, limit).await
    }
    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        self.0.store().complete(lease, recording).await
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        self.0.store().release(lease).await
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        self.0.store().abandon(lease, policy).await
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.0.store().look_up(id).await
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
        audit: &AuditEntry,
    ) -> Result<ResolveOutcome, StoreError> {
        self.0.store().resolve(id, seen, resolution, audit).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        self.0.store().purge(limit).await
    }
}

struct Fixture {
    store: Shared,
    owner: Runtime,
    other: Runtime,
}

impl Fixture {
    async fn new(subject: Arc<dyn TestedStore>) -> Self {
        let store = Shared(subject);
        store.migrate().await.unwrap();
        let mut options = RuntimeOptions::default();
        options.purge_every = None;
        let [owner, other] = [(); 2].map(|()| Runtime::new(store.clone(), options.clone()));
        Self { store, owner, other }
    }

    /// Claims a key for a process that dies at once.
    async fn claim_and_die(&self) -> RecordId {
        let (id, owner) = (id(), OwnerToken::random().unwrap());
        let claim = Claim::new(FingerprintKeys::none().sign(digest()), owner).with_policy(&POLICY);
        let granted = ClaimOutcome::Granted { attempt: 1 };
        assert_eq!(self.store.claim(&id, &claim).await.unwrap(), granted);
        id
    }

    async fn step(&self, forward: bool) {
        if forward {
            self.store.0.advance(STEP).await;
        } else {
            assert!(self.store.0.set_back(STEP).await);
        }
    }

    /// Waits until the owner has renewed the lease since the step: until it lasts no longer than
    /// its length, and has not expired.
    async fn await_renewal(&self, id: &RecordId) -> idempotent_core::clock::Timestamp {
        let until = Instant::now() + WAIT_LIMIT;
        loop {
            let found = self.store.look_up(id).await.unwrap().unwrap();
            if found.record.lease_left(found.at) <= LEASE && !found.record.lease_expired(found.at) {
                return found.record.lease_until;
            }
            assert!(Instant::now() < until, "the lease is not renewed: {found:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn assert_in_flight(&self, id: RecordId) {
        let verdict = rejected(&self.other, id, &POLICY).await;
        assert!(matches!(verdict, Verdict::Rejected(Rejection::InFlight { .. })), "{verdict:?}");
    }
}

async fn check_step(fixture: &Fixture, forward: bool) {
    let id = id();
    let attempt = proceed(&fixture.owner, id, &POLICY).await;
    let dead = fixture.claim_and_die().await;
    fixture.step(forward).await;
    if !forward {
        // Every lease seems to last for hours.
        fixture.assert_in_flight(id).await;
    }
    let mut renewed = vec![fixture.await_renewal(&id).await];
    while renewed.len() <= RENEWALS {
        fixture.assert_in_flight(id).await;
        let lease_until = fixture.await_renewal(&id).await;
        if renewed.last() != Some(&lease_until) {
            renewed.push(lease_until);
        }
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored);
    assert_eq!(
        rejected(&fixture.other, id, &POLICY).await,
        Verdict::Rejected(Rejection::Completed(recording())),
        "the response is lost"
    );
    let until = Instant::now() + WAIT_LIMIT;
    let attempt = loop {
        match fixture.other.begin(dead, digest(), &POLICY).await.unwrap() {
            Admission::Proceed(attempt) => break attempt,
            Admission::Rejected(verdict) => {
                assert!(
                    matches!(verdict, Verdict::Rejected(Rejection::InFlight { .. })),
                    "{verdict:?}"
                );
            }
        }
        assert!(Instant::now() < until, "the key of a process that died stays in flight");
        sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(attempt.number(), 2);
    assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored);
}

async fn check(subject: Arc<dyn TestedStore>) {
    let fixture = Fixture::new(subject).await;
    for forward in [true, false] {
        check_step(&fixture, forward).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_memory_a_clock_that_is_set_neither_runs_an_operation_twice_nor_blocks_its_key() {
    let memory = Arc::new(ShiftedMemory::new());
    let clock = memory.clone();
    // The clock of the memory store moves only if a test moves it.
    let running = tokio::spawn(async move {
        let mut last = Instant::now();
        loop {
            sleep(Duration::from_millis(5)).await;
            let now = Instant::now();
            clock.advance(now - last).await;
            last = now;
        }
    });
    check(memory).await;
    running.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_a_clock_that_is_set_neither_runs_an_operation_twice_nor_blocks_its_key() {
    check(Arc::new(ShiftedSqlite::new().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_a_clock_that_is_set_neither_runs_an_operation_twice_nor_blocks_its_key() {
    check(Arc::new(ShiftedPostgres::new().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis_a_clock_that_is_set_neither_runs_an_operation_twice_nor_blocks_its_key() {
    let server = TestServer::start();
    check(Arc::new(server.subject(false).await)).await;
}
