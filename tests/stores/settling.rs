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
    Abandoned, BodyForm, Digester, Key, Lease, OwnerToken, Policy, RecordId, RecordState,
    RecordedBody, Recording, RequestDigest, ScopeId, Store, StoreError,
    protocol::{
        Claim, ClaimOutcome, Fence, RenewOutcome, Renewal, Resolution, ResolveOutcome, Snapshot,
    },
    runtime::{Admission, Attempt, AttemptOutcome, Runtime, RuntimeOptions, Verdict},
    store::{Transaction, TransactionClaim, Transactions, sqlite::SqliteStore},
};
use sqlx::{SqliteConnection, SqlitePool};

use crate::support::File;

/// What a commit does before its acknowledgment is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LostCommit {
    AfterTheCommit,
    BeforeTheCommit,
    /// Nor can the outcome be looked up, for this many calls.
    AndTheStoreIsGone,
}

/// A SQLite store that loses acknowledgments.
#[derive(Clone)]
struct LosingStore {
    store: SqliteStore,
    loss: LostCommit,
    gone: Arc<AtomicUsize>,
}

struct LosingTransaction {
    inner: Box<dyn Transaction>,
    store: LosingStore,
}

fn lost() -> StoreError {
    StoreError::transient("losing", "do as it was outcome", "the internal cause")
}

impl LosingStore {
    fn wrap(&self, inner: Box<dyn Transaction>) -> Box<dyn Transaction> {
        Box::new(LosingTransaction { inner, store: self.clone() })
    }

    fn there(&self) -> Result<&SqliteStore, StoreError> {
        let count = |left: usize| left.checked_sub(1);
        if self.gone.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count).is_ok() {
            Err(lost())
        } else {
            Ok(&self.store)
        }
    }
}

#[async_trait]
impl Transactions for LosingStore {
    fn database(&self) -> TypeId {
        self.store.database()
    }
    async fn begin(&self) -> Result<Box<dyn Transaction>, StoreError> {
        Ok(self.wrap(self.store.begin().await?))
    }
    async fn claim(
        &self,
        id: &RecordId,
        claim: &Claim,
        wait: Duration,
    ) -> Result<TransactionClaim, StoreError> {
        Ok(match Transactions::claim(self.there()?, id, claim, wait).await? {
            TransactionClaim::Granted { attempt, transaction } => {
                TransactionClaim::Granted { attempt, transaction: self.wrap(transaction) }
            }
            outcome @ TransactionClaim::Rejected(_) => outcome,
        })
    }
}

#[async_trait]
impl Transaction for LosingTransaction {
    fn connection(&self) -> &(dyn Any + Send + Sync) {
        self.inner.connection()
    }
    fn connection_mut(&mut self) -> &mut (dyn Any + Send + Sync) {
        self.inner.connection_mut()
    }
    async fn undo(&mut self) -> Result<(), StoreError> {
        self.inner.undo().await
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
            LostCommit::AndTheStoreIsGone => {
                self.inner.commit().await?;
                self.store.gone.store(2, Ordering::SeqCst);
            }
        }
        Err(lost())
    }
    async fn roll_back(self: Box<Self>) -> bool {
        self.inner.roll_back().await
    }
}

#[async_trait]
impl Store for LosingStore {
    async fn migrate(&self) -> Result<(), StoreError> {
        Store::migrate(&self.store).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.store.check().await
    }

    fn namespace(&self) -> Option<&str> {
        None
    }
    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        Store::claim(self.there()?, id, claim).await
    }
    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        self.store.renew(leases).await
    }
    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        self.there()?.complete(lease, recording).await
    }
    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        self.there()?.release(lease).await
    }
    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        self.there()?.abandon(lease, policy).await
    }
    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        self.there()?.look_up(id).await
    }
    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
    ) -> Result<ResolveOutcome, StoreError> {
        self.store.resolve(id, seen, resolution).await
    }
    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        self.store.purge(limit).await
    }
    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }
}

/// A runtime on a store that loses acknowledgments.
struct World {
    runtime: Runtime,
    store: LosingStore,
    pool: SqlitePool,
    within: bool,
    _file: File,
}

fn digest() -> RequestDigest {
    Digester::new("POST", "/", "", b"", BodyForm::Raw).finish()
}

fn id() -> RecordId {
    RecordId::new("tests", &ScopeId::new("alice"), "POST /", &Key::parse(b"k").unwrap())
}

impl World {
    async fn new(loss: LostCommit, within: bool) -> Self {
        let file = File::new();
        let store = LosingStore { store: file.open().await, loss, gone: Arc::default() };
        Store::migrate(&store).await.unwrap();
        let pool = file.pool().await;
        sqlx::raw_sql("CREATE TABLE effects (attempt INTEGER)").execute(&pool).await.unwrap();
        let runtime = Runtime::new(store.clone(), RuntimeOptions::default());
        Self { runtime, store, pool, within, _file: file }
    }

    async fn begin(&self, policy: &Policy) -> Admission {
        match self.within {
            true => self.runtime.begin_in_transaction(id(), digest(), policy).await.unwrap(),
            false => self.runtime.begin(id(), digest(), policy).await.unwrap(),
        }
    }

    /// Begins an attempt once nothing is left of the one before: its connection closes, and its
    /// lease expires, with a delay.
    async fn granted(&self, policy: &Policy) -> Attempt {
        for _ in 0..1_000 {
            match self.begin(policy).await {
                Admission::Proceed(attempt) => return attempt,
                Admission::Rejected(Verdict::InFlight { .. }) => {
                    tokio::time::sleep(Duration::from_millis(20)).await
                }
                Admission::Rejected(verdict) => panic!("it does not run: {verdict:?}"),
            }
        }
        panic!("it stays in flight")
    }

    /// Runs an attempt that writes its effect and completes.
    async fn run(&self, policy: &Policy) -> (u32, AttemptOutcome) {
        let mut attempt = self.granted(policy).await;
        if !self.within {
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
            Admission::Rejected(Verdict::Completed(response)) => response.status == 201,
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
    for within in [false, true] {
        let world = World::new(LostCommit::AfterTheCommit, within).await;
        assert_eq!(
            world.run(&Policy::DEFAULT).await,
            (1, AttemptOutcome::Stored),
            "within: {within}"
        );
        assert_eq!(world.effects().await, 1);
        assert!(world.replays().await, "within: {within}");
    }
}

#[tokio::test]
async fn a_commit_that_did_not_happen_is_settled() {
    for within in [false, true] {
        let world = World::new(LostCommit::BeforeTheCommit, within).await;
        for attempt in 1..=3 {
            // A leased claim is abandoned; a claim within the transaction does not exist.
            let number = if within { 1 } else { attempt };
            let ended = AttemptOutcome::NotCommitted { transient: true };
            assert_eq!(world.run(&Policy::DEFAULT).await, (number, ended), "within: {within}");
            assert_eq!(world.effects().await, 0);
        }
    }
}

#[tokio::test]
async fn a_commit_that_did_not_happen_is_held_under_hold() {
    let world = World::new(LostCommit::BeforeTheCommit, false).await;
    let policy = Policy::DEFAULT.with_abandoned(Abandoned::Hold);
    assert_eq!(world.run(&policy).await.1, AttemptOutcome::NotCommitted { transient: true });
    assert_eq!((world.state().await, world.effects().await), (Some(RecordState::Held), 0));
    assert!(matches!(world.begin(&policy).await, Admission::Rejected(Verdict::Held { .. })));
}

#[tokio::test]
async fn a_commit_that_cannot_be_settled_yet_is_found_by_the_next_request() {
    for within in [false, true] {
        let world = World::new(LostCommit::AndTheStoreIsGone, within).await;
        assert_eq!(
            world.run(&Policy::DEFAULT).await,
            (1, AttemptOutcome::NotCommitted { transient: true })
        );
        world.runtime.drained().await;
        world.store.gone.store(0, Ordering::SeqCst);
        assert_eq!(world.effects().await, 1);
        assert!(world.replays().await, "within: {within}");
        assert_eq!(world.effects().await, 1);
    }
}

#[tokio::test]
async fn a_dropped_attempt_commits_nothing() {
    for within in [false, true] {
        let world = World::new(LostCommit::AfterTheCommit, within).await;
        let policy = Policy::DEFAULT.with_lease(Duration::from_millis(50));
        let Admission::Proceed(mut attempt) = world.begin(&policy).await else {
            panic!("it does not run")
        };
        if !within {
            attempt.begin_transaction().await.unwrap();
        }
        write(&mut attempt).await;
        drop(attempt);
        assert_eq!(world.effects().await, 0);
        tokio::time::sleep(Duration::from_millis(60)).await;
        let number = if within { 1 } else { 2 };
        assert_eq!(world.run(&policy).await, (number, AttemptOutcome::Stored), "within: {within}");
        assert_eq!(world.effects().await, 1);
    }
}

#[tokio::test]
async fn a_completion_dropped_after_any_poll_keeps_effect_and_record_together() {
    let (mut committed, mut not) = (0, 0);
    for within in [false, true] {
        for polls in 0..10 {
            let world = World::new(LostCommit::AfterTheCommit, within).await;
            let Admission::Proceed(mut attempt) = world.begin(&Policy::DEFAULT).await else {
                panic!("it does not run")
            };
            if !within {
                attempt.begin_transaction().await.unwrap();
            }
            write(&mut attempt).await;
            let response =
                Recording::new(201, Vec::new(), RecordedBody::Whole(Bytes::from_static(b"done")));
            {
                let mut end = std::pin::pin!(attempt.complete(&response));
                for _ in 0..polls {
                    let ready =
                        poll_fn(|context| Poll::Ready(end.as_mut().poll(context).is_ready())).await;
                    if ready {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            world.runtime.drained().await;
            // All work has ended once the file can be written.
            sqlx::raw_sql("BEGIN IMMEDIATE; ROLLBACK").execute(&world.pool).await.unwrap();
            let completed = matches!(world.state().await, Some(RecordState::Completed(_)));
            assert_eq!(
                world.effects().await,
                i64::from(completed),
                "within: {within}, {polls} polls"
            );
            if completed { committed += 1 } else { not += 1 }
        }
    }
    assert!(committed >= 5 && not >= 2, "{committed} committed, {not} not");
}
