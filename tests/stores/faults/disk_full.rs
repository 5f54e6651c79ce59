//! A disk that is full for a while.
//!
//! SQLite: the file may have no more pages (`PRAGMA max_page_count`, which fails in the same way as
//! a full disk). Postgres: a trigger raises the error `disk_full` (53100) for each insert and each
//! new recording; what the server itself does on a full disk is not tested.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use bytes::Bytes;
use idempotent_core::{
    EncodedRecording, Policy, RecordId, Runtime,
    protocol::Rejection,
    runtime::{Admission, AttemptOutcome, RuntimeOptions, Verdict},
};
use idempotent_http::recording::{RecordedBody, Recording};
use idempotent_postgres::PostgresStore;
use idempotent_sqlite::SqliteStore;
use sqlx::{
    AssertSqlSafe, PgConnection, PgPool, SqliteConnection, SqlitePool,
    sqlite::{SqliteJournalMode, SqlitePoolOptions},
};
use tokio::time::{Instant, sleep};

use super::{proceed, rejected};
use test_support::{
    WAIT_LIMIT,
    cuts::{digest, id, recording},
    servers::postgres::sql,
    subjects::{postgres, sqlite::File},
};

/// The limit of pages while the disk has room.
const UNLIMITED: i64 = 1_000_000;
const EFFECT: &str = "INSERT INTO effects VALUES ('done')";
/// The disk counts as full after this many refused claims. Before, some keys may still find room in
/// the last pages.
const REFUSALS: usize = 20;
const MAX_LAST_CLAIMS: usize = 400;

enum Disk {
    Sqlite { rows: SqlitePool, max_pages: Arc<AtomicI64>, _file: File },
    Postgres { rows: PgPool },
}

/// Two processes whose store is on a disk that the test can fill.
struct Fixture {
    disk: Disk,
    process: Runtime,
    other: Runtime,
}

fn options() -> RuntimeOptions {
    let mut options = RuntimeOptions::default();
    options.purge_every = None;
    options
}

/// A response that needs new pages.
fn large() -> EncodedRecording {
    let body = Bytes::from(vec![b'x'; 100_000]);
    Recording::new(201, Vec::new(), RecordedBody::Whole(body)).encode()
}

/// Limits the file for a connection.
async fn limit_pages(connection: &mut SqliteConnection, pages: i64) -> Result<(), sqlx::Error> {
    let limit = AssertSqlSafe(format!("PRAGMA max_page_count = {pages}"));
    sqlx::raw_sql(limit).execute(connection).await.map(drop)
}

impl Disk {
    /// A claim in a transaction writes its record at once in SQLite, and on completion in Postgres.
    async fn assert_transaction_is_refused(&self, runtime: &Runtime, id: RecordId) {
        let begun = runtime.begin_in_transaction(id, digest(), &Policy::DEFAULT).await;
        match self {
            Self::Sqlite { .. } => assert!(begun.unwrap_err().is_transient()),
            Self::Postgres { .. } => {
                let Ok(Admission::Proceed(attempt)) = begun else { panic!("{begun:?}") };
                let ending = attempt.complete(&recording()).await;
                assert!(
                    matches!(ending, AttemptOutcome::NotCommitted { transient: true }),
                    "{ending:?}"
                );
            }
        }
    }
}

impl Fixture {
    async fn sqlite() -> Self {
        let (file, max_pages) = (File::new(), Arc::new(AtomicI64::new(UNLIMITED)));
        let [on_connect, on_acquire] = [max_pages.clone(), max_pages.clone()];
        let pool = SqlitePoolOptions::new()
            .max_connections(4)
            .after_connect(move |connection, _| {
                let pages = on_connect.load(Ordering::SeqCst);
                Box::pin(async move { limit_pages(connection, pages).await })
            })
            .before_acquire(move |connection, _| {
                let pages = on_acquire.load(Ordering::SeqCst);
                Box::pin(async move { limit_pages(connection, pages).await.map(|()| true) })
            })
            .connect_with(file.options().journal_mode(SqliteJournalMode::Wal))
            .await
            .unwrap();
        let store = SqliteStore::from_pool(pool).await.unwrap();
        store.migrate().await.unwrap();
        let rows = file.pool().await;
        sqlx::raw_sql("CREATE TABLE effects (note text)").execute(&rows).await.unwrap();
        let [process, other] = [(); 2].map(|()| Runtime::new(store.clone(), options()));
        Self { disk: Disk::Sqlite { rows, max_pages, _file: file }, process, other }
    }

    async fn postgres() -> Self {
        let (store, url) = postgres::store().await;
        let schema = "CREATE TABLE effects (note text); CREATE TABLE disk (is_full bool);
            INSERT INTO disk VALUES (false);
            CREATE FUNCTION extend() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF (SELECT is_full FROM disk) THEN
                    RAISE 'could not extend file' USING ERRCODE = 'disk_full';
                END IF;
                RETURN NEW;
            END $$;
            CREATE TRIGGER extend BEFORE INSERT OR UPDATE OF recording ON idempotency_records
            FOR EACH ROW EXECUTE FUNCTION extend();";
        sql(&url, schema).await;
        let rows = PgPool::connect(&url).await.unwrap();
        let other = PostgresStore::connect(&url).await.unwrap();
        let (process, other) = (Runtime::new(store, options()), Runtime::new(other, options()));
        Self { disk: Disk::Postgres { rows }, process, other }
    }

    async fn set_full(&self, is_full: bool) {
        match &self.disk {
            Disk::Sqlite { rows, max_pages, .. } => {
                let pages = sqlx::query_scalar("PRAGMA page_count").fetch_one(rows).await.unwrap();
                max_pages.store(if is_full { pages } else { UNLIMITED }, Ordering::SeqCst);
            }
            Disk::Postgres { rows } => {
                let set = sqlx::query("UPDATE disk SET is_full = $1").bind(is_full);
                set.execute(rows).await.unwrap();
            }
        }
    }

    async fn effects(&self) -> i64 {
        let count = "SELECT count(*) FROM effects";
        match &self.disk {
            Disk::Sqlite { rows, .. } => sqlx::query_scalar(count).fetch_one(rows).await.unwrap(),
            Disk::Postgres { rows } => sqlx::query_scalar(count).fetch_one(rows).await.unwrap(),
        }
    }

    /// Claims new keys until every page has too little room for another one.
    async fn claim_until_refused(&self) {
        let mut refused = 0;
        for _ in 0..MAX_LAST_CLAIMS {
            match self.process.begin(id(), digest(), &Policy::DEFAULT).await {
                Ok(admission) => {
                    drop(admission);
                    refused = 0;
                }
                Err(error) => {
                    assert!(error.is_transient(), "{error:?}");
                    refused += 1;
                }
            }
            if refused == REFUSALS {
                return;
            }
        }
        panic!("the disk is not full");
    }

    /// Runs a handler that writes one effect, and responds with this recording.
    async fn run_in_transaction(
        &self,
        id: RecordId,
        response: &EncodedRecording,
    ) -> AttemptOutcome {
        let mut attempt = proceed(&self.process, id, &Policy::DEFAULT).await;
        attempt.begin_transaction().await.unwrap();
        let mut transaction = attempt.take_transaction().unwrap();
        let connection = transaction.connection_mut();
        if let Some(connection) = connection.downcast_mut::<SqliteConnection>() {
            sqlx::raw_sql(EFFECT).execute(connection).await.unwrap();
        } else {
            let connection = connection.downcast_mut::<PgConnection>().unwrap();
            sqlx::raw_sql(EFFECT).execute(connection).await.unwrap();
        }
        attempt.return_transaction(transaction);
        attempt.complete(response).await
    }
}

async fn check(fixture: Fixture) {
    let [past, working, in_transaction, refused] = [(); 4].map(|()| id());
    let attempt = proceed(&fixture.process, past, &Policy::DEFAULT).await;
    assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored);
    let attempt = proceed(&fixture.process, working, &Policy::DEFAULT).await;
    // So that the next transaction claims a key that has a record.
    drop(proceed(&fixture.process, in_transaction, &Policy::DEFAULT).await.release().await);

    fixture.set_full(true).await;
    fixture.claim_until_refused().await;
    for runtime in [&fixture.process, &fixture.other] {
        let error = runtime.begin(refused, digest(), &Policy::DEFAULT).await.unwrap_err();
        assert!(error.is_transient(), "{error:?}");
        fixture.disk.assert_transaction_is_refused(runtime, refused).await;
        let replay = rejected(runtime, past, &Policy::DEFAULT).await;
        assert_eq!(replay, Verdict::Rejected(Rejection::Completed(recording())));
    }
    // The response is kept in memory, and its key by its lease.
    assert_eq!(attempt.complete(&large()).await, AttemptOutcome::Deferred);
    assert_eq!(
        rejected(&fixture.process, working, &Policy::DEFAULT).await,
        Verdict::Rejected(Rejection::Completed(large()))
    );
    let verdict = rejected(&fixture.other, working, &Policy::DEFAULT).await;
    assert!(matches!(verdict, Verdict::Rejected(Rejection::InFlight { .. })), "{verdict:?}");

    fixture.set_full(false).await;
    let until = Instant::now() + WAIT_LIMIT;
    while rejected(&fixture.other, working, &Policy::DEFAULT).await
        != Verdict::Rejected(Rejection::Completed(large()))
    {
        assert!(Instant::now() < until, "the response is not stored");
        sleep(std::time::Duration::from_millis(5)).await;
    }
    let attempt = proceed(&fixture.other, refused, &Policy::DEFAULT).await;
    assert_eq!(attempt.complete(&large()).await, AttemptOutcome::Stored);
    assert_effects_and_record_fail_together(&fixture, in_transaction).await;
}

/// The disk is full after the handler has written its effect.
async fn assert_effects_and_record_fail_together(fixture: &Fixture, id: RecordId) {
    let mut attempt = proceed(&fixture.process, id, &Policy::DEFAULT).await;
    fixture.set_full(true).await;
    attempt.begin_transaction().await.unwrap();
    let transaction = attempt.take_transaction().unwrap();
    attempt.return_transaction(transaction);
    let ending = attempt.complete(&large()).await;
    assert!(matches!(ending, AttemptOutcome::NotCommitted { .. }), "{ending:?}");
    let ending = fixture.run_in_transaction(id, &large()).await;
    assert!(matches!(ending, AttemptOutcome::NotCommitted { transient: true }), "{ending:?}");
    assert_eq!(fixture.effects().await, 0);
    fixture.set_full(false).await;
    assert_eq!(fixture.run_in_transaction(id, &large()).await, AttemptOutcome::Stored);
    assert_eq!(fixture.effects().await, 1);
    let begun = fixture.other.begin(id, digest(), &Policy::DEFAULT).await.unwrap();
    assert!(
        matches!(begun, Admission::Rejected(Verdict::Rejected(Rejection::Completed(stored))) if stored == large())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_a_full_disk_refuses_new_keys_and_loses_no_response() {
    check(Fixture::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_a_full_disk_refuses_new_keys_and_loses_no_response() {
    check(Fixture::postgres().await).await;
}
