//! Commits whose acknowledgment is lost.

use std::{
    any::{Any, TypeId},
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use idempotent_core::{
    Abandoned, Digester, Key, Lease, OnAbandon, OwnerToken, Policy, RecordId, RecordState,
    RequestDigest, ScopeId, ShortText, Store, StoreError,
    protocol::{
        AuditEntry, Claim, ClaimOutcome, Fence, Rejection, RenewOutcome, Renewal, Resolution,
        ResolveOutcome, ResumablePage, Snapshot,
    },
    runtime::{Admission, Attempt, AttemptOutcome, Runtime, RuntimeOptions, Verdict},
    store::{Transaction, TransactionClaim, Transactions},
};
use idempotent_http::recording::{RecordedBody, Recording};
use idempotent_sqlite::SqliteStore;
use sqlx::{SqliteConnection, SqlitePool};

use test_support::subjects::sqlite::File;

mod dropped_attempts;

/// What a commit does before its acknowledgment is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LostCommit {
    AfterTheCommit,
    BeforeTheCommit,
    /// Afterwards the next calls fail, so that the outcome cannot be looked up.
    AfterTheCommitAndUnreachable,
}

/// A SQLite store whose commits take place, or not, and always lose their acknowledgment.
#[derive(Clone)]
struct AckLosingStore {
    store: SqliteStore,
    loss: LostCommit,
    unreachable_calls: Arc<AtomicUsize>,
}

struct AckLosingTransaction {
    inner: Box<dyn Transaction>,
    store: AckLosingStore,
}

fn lost() -> StoreError {
    StoreError::transient("losing", "execute the call", "the internal cause")
}

impl AckLosingStore {
    fn wrap(&self, inner: Box<dyn Transaction>) -> Box<dyn Transaction> {
        Box::new(AckLosingTransaction { inner, store: self.clone() })
    }

    fn transactions(&self) -> &dyn Transactions {
        self.store.transactions().unwrap()
    }

    fn reachable(&self) -> Result<&SqliteStore, StoreError> {
        let count = |left: usize| left.checked_sub(1);
        if self.unreachable_calls.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count).is_ok() {
            Err(lost())
        } else {
            Ok(&self.store)
        }
    }
}

#[async_trait]
impl Transactions for AckLosingStore {
    fn database(&self) -> TypeId {
        self.transactions().database()
    }
    async fn begin(&self) -> Result<Box<dyn Transaction>, StoreError> {
        Ok(self.wrap(self.transactions().begin().await?))
    }
    async fn claim(
        &self,
        id: &RecordId,
        claim: &Claim,
        wait: Duration,
    ) -> Result<TransactionClaim, StoreError> {
        self.reachable()?;
        Ok(match self.transactions().claim(id, claim, wait).await? {
            TransactionClaim::Granted { attempt, transaction } => {
                TransactionClaim::Granted { attempt, transaction: self.wrap(transaction) }
            }
            outcome @ TransactionClaim::Rejected(_) => outcome,
        })
    }
}

#[async_trait]
impl Transaction for AckLosingTransaction {
    fn connection(&self) -> &(dyn Any + Send + Sync) {
        self.inner.connection()
    }
    fn connection_mut(&mut self) -> &mut (dyn Any + Send + Sync) {
        self.inner.connection_mut()
    }
    async fn undo(&mut self) -> Result<(), StoreError> {
        self.inner.undo().await
    }
    async fn note(
        &mut self,
        lease: &Lease,
        note: &idempotent_core::protocol::Note,
    ) -> Result<Fence, StoreError> {
        self.inner.note(lease, note).await
    }
    async fn complete(&mut self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        self.inner.complete(lease, recording).await
    }
    async fn abandon(&mut self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        self.inner.abandon(lease, policy).await
    }
    async fn commit(self: Box<Self>) -> Result<(), StoreError> {
        match self.store.loss {
            LostCommit::AfterTheCommit => self.inner.commit().await?,
            LostCommit::BeforeTheCommit => {
                self.inner.roll_back().await;
            }
            LostCommit::AfterTheCommitAndUnreachable => {
                self.inner.commit().await?;
                self.store.unreachable_calls.store(2, Ordering::SeqCst);
            }
        }
        Err(lost())
    }
    async fn roll_back(self: Box<Self>) -> bool {
        self.inner.roll_back().await
    }
}

#[async_trait]
impl Store for AckLosingStore {
    async fn migrate(&self) -> Result<(), StoreError> {
        Store::migrate(&self.store).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.store.check().await
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        Store::claim(self.reachable()?, id, claim).await
    }
    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        self.store.renew(leases).await
    }
    async fn note(
        &self,
        lease: &Lease,
        note: &idempotent_core::protocol::Note,
    ) -> Result<Fence, StoreError> {
        self.reachable()?.note(lease, note).await
    }
    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        self.store.resumable(operation, after, limit).await
    }
    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        self.reachable()?.complete(lease, recording).await
    }
    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        self.reachable()?.release(lease).await
    }
    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        self.reachable()?.abandon(lease, policy).await
    }
    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.reachable()?.look_up(id).await
    }
    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
        audit: &AuditEntry,
    ) -> Result<ResolveOutcome, StoreError> {
        self.store.resolve(id, seen, resolution, audit).await
    }
    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        self.store.purge(limit).await
    }
    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }
}

/// A runtime on a store that loses acknowledgments.
struct Fixture {
    runtime: Runtime,
    store: AckLosingStore,
    pool: SqlitePool,
    in_transaction: bool,
    _file: File,
}

fn digest() -> RequestDigest {
    Digester::new(["POST", "/"]).finish()
}

fn id() -> RecordId {
    RecordId::new("tests", &ScopeId::new("alice"), "POST /", &Key::from_text("k").unwrap())
}

impl Fixture {
    async fn new(loss: LostCommit, in_transaction: bool) -> Self {
        let file = File::new();
        let store =
            AckLosingStore { store: file.open().await, loss, unreachable_calls: Arc::default() };
        Store::migrate(&store).await.unwrap();
        let pool = file.pool().await;
        sqlx::raw_sql("CREATE TABLE effects (attempt INTEGER)").execute(&pool).await.unwrap();
        let runtime = Runtime::new(store.clone(), RuntimeOptions::default());
        Self { runtime, store, pool, in_transaction, _file: file }
    }

    async fn begin(&self, policy: &Policy) -> Admission {
        match self.in_transaction {
            true => self.runtime.begin_in_transaction(id(), digest(), policy).await.unwrap(),
            false => self.runtime.begin(id(), digest(), policy).await.unwrap(),
        }
    }

    /// Begins an attempt, and waits while the previous one is in flight: its connection closes and
    /// its lease expires with a delay.
    async fn begin_attempt(&self, policy: &Policy) -> Attempt {
        for _ in 0..1_000 {
            match self.begin(policy).await {
                Admission::Proceed(attempt) => return attempt,
                Admission::Rejected(Verdict::Rejected(Rejection::InFlight { .. })) => {
                    tokio::time::sleep(Duration::from_millis(20)).await
                }
                Admission::Rejected(verdict) => panic!("the claim was rejected: {verdict:?}"),
            }
        }
        panic!("the key stays in flight")
    }

    /// Runs an attempt that writes its effect and completes.
    async fn run(&self, policy: &Policy) -> (u32, AttemptOutcome) {
        let mut attempt = self.begin_attempt(policy).await;
        if !self.in_transaction {
            attempt.begin_transaction().await.unwrap();
        }
        let number = attempt.number();
        write(&mut attempt).await;
        let response =
            Recording::new(201, Vec::new(), RecordedBody::Whole(Bytes::from_static(b"done")));
        (number, attempt.complete(&response).await)
    }

    async fn effects(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM effects").fetch_one(&self.pool).await.unwrap()
    }

    async fn state(&self) -> Option<RecordState> {
        self.store.store.look_up(&id()).await.unwrap().map(|found| found.record.state)
    }

    async fn replays(&self) -> bool {
        match self.begin(&Policy::DEFAULT).await {
            Admission::Rejected(Verdict::Rejected(Rejection::Completed(response))) => {
                Recording::decode(&response).is_ok_and(|response| response.status == 201)
            }
            Admission::Rejected(_) | Admission::Proceed(_) => false,
        }
    }
}

async fn write(attempt: &mut Attempt) {
    let mut transaction = attempt.take_transaction().unwrap();
    let connection: &mut SqliteConnection = transaction.connection_mut().downcast_mut().unwrap();
    let number = i64::from(attempt.number());
    sqlx::query("INSERT INTO effects VALUES (?1)").bind(number).execute(connection).await.unwrap();
    attempt.return_transaction(transaction);
}

#[tokio::test]
async fn a_commit_without_its_acknowledgment_is_settled() {
    for in_transaction in [false, true] {
        let fixture = Fixture::new(LostCommit::AfterTheCommit, in_transaction).await;
        assert_eq!(
            fixture.run(&Policy::DEFAULT).await,
            (1, AttemptOutcome::Stored),
            "in transaction: {in_transaction}"
        );
        assert_eq!(fixture.effects().await, 1);
        assert!(fixture.replays().await, "in transaction: {in_transaction}");
    }
}

#[tokio::test]
async fn a_commit_that_did_not_happen_is_reported() {
    for in_transaction in [false, true] {
        let fixture = Fixture::new(LostCommit::BeforeTheCommit, in_transaction).await;
        for attempt in 1..=3 {
            // A claim with a lease is abandoned; a claim in the transaction is rolled back.
            let number = if in_transaction { 1 } else { attempt };
            let ended = AttemptOutcome::NotCommitted { transient: true };
            assert_eq!(
                fixture.run(&Policy::DEFAULT).await,
                (number, ended),
                "in transaction: {in_transaction}"
            );
            assert_eq!(fixture.effects().await, 0);
        }
    }
}

#[tokio::test]
async fn a_commit_that_did_not_happen_is_held_with_the_hold_policy() {
    let fixture = Fixture::new(LostCommit::BeforeTheCommit, false).await;
    let policy = Policy::DEFAULT.with_abandoned(OnAbandon::Hold);
    assert_eq!(fixture.run(&policy).await.1, AttemptOutcome::Held);
    assert_eq!((fixture.state().await, fixture.effects().await), (Some(RecordState::Held), 0));
    assert!(matches!(
        fixture.begin(&policy).await,
        Admission::Rejected(Verdict::Rejected(Rejection::Held { .. }))
    ));
}

#[tokio::test]
async fn a_commit_that_cannot_be_looked_up_at_once_is_found_by_the_next_request() {
    for in_transaction in [false, true] {
        let fixture = Fixture::new(LostCommit::AfterTheCommitAndUnreachable, in_transaction).await;
        assert_eq!(
            fixture.run(&Policy::DEFAULT).await,
            (1, AttemptOutcome::NotCommitted { transient: true })
        );
        fixture.runtime.drain().await;
        fixture.store.unreachable_calls.store(0, Ordering::SeqCst);
        assert_eq!(fixture.effects().await, 1);
        assert!(fixture.replays().await, "in transaction: {in_transaction}");
        assert_eq!(fixture.effects().await, 1);
    }
}
