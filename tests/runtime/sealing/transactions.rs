//! Steps and results in the handler's transaction, on each database and with each claim.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use idempotent_core::{
    Key, RecordId, ScopeId,
    job::{ClaimMode, Failure, JobTransaction},
};
use sqlx::{Connection, PgConnection, SqliteConnection};
use test_support::subjects::{postgres, sqlite::File};

use super::*;

const JOB: Job = Job::new("transfer");
const RECORD: &str = "SELECT coalesce(steps, recording) FROM idempotency_records";

/// A connection of a handler, which reads what is kept of the only record.
trait Reader: Connection + Send + Sync + 'static {
    async fn kept(&mut self) -> Vec<u8>;
}

impl Reader for SqliteConnection {
    async fn kept(&mut self) -> Vec<u8> {
        sqlx::query_scalar(RECORD).fetch_one(self).await.unwrap()
    }
}

impl Reader for PgConnection {
    async fn kept(&mut self) -> Vec<u8> {
        sqlx::query_scalar(RECORD).fetch_one(self).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_in_a_transaction_of_sqlite_is_sealed() {
    for claim in [ClaimMode::Lease, ClaimMode::Transaction] {
        let file = File::new();
        let store = file.open().await;
        store.migrate().await.unwrap();
        let connection = SqliteConnection::connect(&file.url()).await.unwrap();
        check(Arc::new(store), connection, &JOB.with_claim(claim)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_in_a_transaction_of_postgres_is_sealed() {
    for claim in [ClaimMode::Lease, ClaimMode::Transaction] {
        let (store, url) = postgres::store().await;
        let connection = PgConnection::connect(&url).await.unwrap();
        check(Arc::new(store), connection, &JOB.with_claim(claim)).await;
    }
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

fn assert_sealed(bytes: &[u8]) {
    assert_eq!(bytes.first(), Some(&idempotent_core::EncodedRecording::SEALED));
    assert!(!has(bytes, SECRET) && !has(bytes, "ledger"));
}

/// Runs the job of which an earlier attempt may have recorded a step. Returns how often that step,
/// the one in the transaction, and the whole work ran.
async fn transfer<C: Reader>(
    runtime: &Runtime,
    job: &Job,
    fails: bool,
) -> (Result<(String, bool), RunError>, [u32; 3]) {
    let ran: Arc<[AtomicU32; 3]> = Arc::default();
    let counts = ran.clone();
    let count = move |which: usize| counts[which].fetch_add(1, Ordering::Relaxed);
    let is_leased = job.claim == ClaimMode::Lease;
    let work = |operation: Run, mut transaction: JobTransaction<C>| async move {
        count(2);
        if is_leased {
            let charge = operation.step("charge");
            let charge = charge.run(async |_| {
                count(0);
                Ok::<_, NoteError>(SECRET.to_owned())
            });
            assert_eq!(charge.await?, SECRET);
        }
        let ledger = operation.step("ledger");
        let noted = ledger.run_in(&mut transaction, async |_| {
            count(1);
            Ok::<_, Failure>(SECRET.to_owned())
        });
        let noted = noted.await?;
        assert_sealed(&transaction.connection().await?.kept().await);
        if fails { Err(Failure::Retryable("busy".to_owned())) } else { Ok(noted) }
    };
    let (scope, key) = (ScopeId::new("alice"), Key::from_text("k").unwrap());
    let done = runtime.run_in_transaction(job, &scope, &key, &7, work).await;
    let counts = std::array::from_fn(|which| ran[which].load(Ordering::Relaxed));
    (done.map(|done| (done.value, done.replayed)), counts)
}

async fn check<C: Reader>(store: Arc<dyn Store>, mut connection: C, job: &Job) {
    let runtime = |ids: &[u8]| Runtime::shared(store.clone(), with_keyring(keyring(ids)));
    let is_leased = job.claim == ClaimMode::Lease;
    let (failed, counts) = transfer::<C>(&runtime(&[1]), job, true).await;
    assert!(matches!(failed, Err(RunError::Retryable { .. })), "{failed:?}");
    assert_eq!(counts, [u32::from(is_leased), 1, 1]);
    if is_leased {
        // The step outside of the transaction is kept, and opened only by the keyring.
        assert_sealed(&connection.kept().await);
        for other in [&[2][..], &[]] {
            let (refused, counts) = transfer::<C>(&runtime(other), job, false).await;
            assert_eq!(counts, [0, 0, 1], "a step ran again");
            let Err(RunError::Other { source, .. }) = &refused else { panic!("{refused:?}") };
            assert!(matches!(source.downcast_ref(), Some(NoteError::Sealed)), "{refused:?}");
        }
    }
    let (done, counts) = transfer::<C>(&runtime(&[1]), job, false).await;
    assert_eq!((done.unwrap(), counts), ((SECRET.to_owned(), false), [0, 1, 1]));
    assert_sealed(&connection.kept().await);
    let (replayed, counts) = transfer::<C>(&runtime(&[2, 1]), job, false).await;
    assert_eq!((replayed.unwrap(), counts), ((SECRET.to_owned(), true), [0; 3]));
    for other in [&[2][..], &[]] {
        let (refused, counts) = transfer::<C>(&runtime(other), job, false).await;
        assert!(matches!(refused, Err(RunError::Unreadable { .. })), "{refused:?}");
        assert_eq!(counts, [0; 3], "it ran again");
    }
    let id = RecordId::new("", &ScopeId::new("alice"), job.name, &Key::from_text("k").unwrap());
    assert!(store.look_up(&id).await.unwrap().is_some());
}
