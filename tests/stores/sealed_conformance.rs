//! The conformance suite on stores whose records a keyring seals.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use idempotent_core::{
    Abandoned, Keyring, Lease, OwnerToken, RecordId, ShortText, Store, StoreError,
    conformance::{CASES, Case, TestedStore},
    internals::sealing_store,
    protocol::{
        AuditEntry, Claim, ClaimOutcome, Fence, Note, RenewOutcome, Renewal, Resolution,
        ResolveOutcome, ResumablePage, Snapshot,
    },
    store::{Administration, Transactions},
};
use sqlx::PgPool;
#[cfg(feature = "mysql")]
use test_support::subjects::mysql::{self, ShiftedMySql};
use test_support::subjects::{
    memory::ShiftedMemory,
    postgres::{self, ShiftedPostgres},
    sqlite::ShiftedSqlite,
};
#[cfg(feature = "dynamodb")]
use test_support::{servers::dynamodb::Emulator, subjects::dynamodb::ShiftedDynamoDb};
use tokio::task::JoinSet;

/// How many cases run at the same time.
const CONCURRENT: usize = 8;

/// The only cases that a store with a keyring does not pass. They replace bytes of a record that
/// they have stored, and of which the store has others. Only `reseal` replaces bytes, and reads
/// those that the store has.
const REPLACING: [&str; 2] =
    ["bytes_are_replaced_if_they_are_those_that_were_seen", "a_replacement_undoes_no_other_change"];

/// A subject whose store seals what it is given.
struct Sealed<T> {
    subject: Arc<T>,
    store: Arc<dyn Store>,
}

/// The store of a subject, which the subject chooses for each call.
struct Chosen<T>(Arc<T>);

impl<T: TestedStore> Sealed<T> {
    fn new(subject: T) -> Self {
        let subject = Arc::new(subject);
        let keyring = Keyring::none().with(1, &[1; 32]).unwrap();
        let store = sealing_store(Arc::new(Chosen(subject.clone())), &keyring);
        Self { subject, store }
    }
}

#[async_trait]
impl<T: TestedStore> TestedStore for Sealed<T> {
    fn store(&self) -> &dyn Store {
        &*self.store
    }

    async fn advance(&self, by: Duration) {
        self.subject.advance(by).await;
    }

    async fn set_back(&self, by: Duration) -> bool {
        self.subject.set_back(by).await
    }

    fn tick(&self) -> Duration {
        self.subject.tick()
    }
}

#[async_trait]
impl<T: TestedStore> Store for Chosen<T> {
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

    async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        self.0.store().note(lease, note).await
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

    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        self.0.store().resumable(operation, after, limit).await
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        self.0.store().transactions()
    }

    fn administration(&self) -> Option<&dyn Administration> {
        self.0.store().administration()
    }
}

/// Runs the cases, each on its own subject.
async fn check<T: TestedStore>(subject: impl AsyncFn() -> T) {
    let cases: Vec<Case> =
        CASES.iter().filter(|case| !REPLACING.contains(&case.name())).copied().collect();
    assert_eq!(cases.len(), CASES.len() - REPLACING.len(), "a case has another name");
    for cases in cases.chunks(CONCURRENT) {
        let mut running = JoinSet::new();
        for case in cases {
            let subject = Arc::new(Sealed::new(subject().await));
            subject.store().migrate().await.unwrap();
            let case = *case;
            running.spawn(async move { case.run(subject).await });
        }
        running.join_all().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sealed_memory_store_conforms() {
    check(async || ShiftedMemory::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sealed_sqlite_store_conforms() {
    check(ShiftedSqlite::new).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sealed_postgres_store_conforms() {
    let (store, url) = postgres::store().await;
    let pool = PgPool::connect(&url).await.unwrap();
    check(async || ShiftedPostgres::with_new_table(&store, &pool, None)).await;
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread")]
async fn the_sealed_mysql_store_conforms() {
    let (store, url) = mysql::store().await;
    let pool = sqlx::MySqlPool::connect(&url).await.unwrap();
    check(async || ShiftedMySql::with_new_table(&store, &pool)).await;
}

#[cfg(feature = "dynamodb")]
#[tokio::test(flavor = "multi_thread")]
async fn the_sealed_dynamodb_store_conforms() {
    let emulator = Emulator::shared();
    check(async || ShiftedDynamoDb::new(&emulator.unmigrated())).await;
}
