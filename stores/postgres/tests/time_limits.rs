//! Short time limits of the database: `statement_timeout` and `lock_timeout`.

use std::time::Duration;

use idempotent_core::{
    Policy, RecordId, RecordState, Runtime, Store,
    protocol::Rejection,
    runtime::{Admission, Attempt, AttemptOutcome, RuntimeOptions, Verdict},
};
use idempotent_postgres::PostgresStore;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, postgres::PgPoolOptions};
use test_support::{
    WAIT_LIMIT,
    cuts::{digest, id, recording},
};
use tokio::time::{Instant, sleep, timeout};

use crate::helpers::{number, sql, store};

const LEASE: Duration = Duration::from_secs(2);
const POLICY: Policy = Policy::DEFAULT.with_lease(LEASE);
/// A lease that does not expire while the table is locked.
const LONG: Policy = Policy::DEFAULT.with_lease(Duration::from_secs(15));
const LIMIT: &str = "DO $$ BEGIN
    EXECUTE format('ALTER DATABASE %I SET LIMIT = ''150ms''', current_database());
END $$";
/// Makes each insert and each completion slower than the limit, and counts them.
const SLOW: &str = "CREATE SEQUENCE delayed;
    CREATE FUNCTION delay() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM nextval('delayed'), pg_sleep(0.4);
        RETURN NEW;
    END $$;
    CREATE TRIGGER delay BEFORE INSERT OR UPDATE OF recording ON idempotency_records
    FOR EACH ROW EXECUTE FUNCTION delay();";

/// Two processes with connections of the application, which have the limits of the database.
struct Fixture {
    process: Runtime,
    other: Runtime,
    url: String,
}

impl Fixture {
    /// With a short limit of this kind.
    async fn new(limit: &str) -> Self {
        let (_, url) = store().await;
        sql(&url, LIMIT.replace("LIMIT", limit)).await;
        let runtime = async || {
            let pool: PgPool = PgPoolOptions::new().max_connections(6).connect(&url).await.unwrap();
            let show = AssertSqlSafe(format!("SHOW {limit}"));
            let set: String = sqlx::query_scalar(show).fetch_one(&pool).await.unwrap();
            assert_eq!(set, "150ms");
            let mut options = RuntimeOptions::default();
            options.purge_every = None;
            Runtime::new(PostgresStore::from_pool(pool).await.unwrap(), options)
        };
        let (process, other) = (runtime().await, runtime().await);
        Self { process, other, url }
    }

    async fn proceed(&self, id: RecordId, policy: &Policy) -> Attempt {
        match self.process.begin(id, digest(), policy).await.unwrap() {
            Admission::Proceed(attempt) => attempt,
            Admission::Rejected(verdict) => panic!("{verdict:?}"),
        }
    }

    async fn verdict(&self, id: RecordId) -> Verdict {
        match self.other.begin(id, digest(), &POLICY).await.unwrap() {
            Admission::Rejected(verdict) => verdict,
            Admission::Proceed(_) => panic!("the operation runs twice"),
        }
    }

    /// Waits until the response is stored, without claiming the key, whose lease may have expired.
    async fn await_response(&self, id: RecordId) {
        let until = Instant::now() + WAIT_LIMIT;
        let is_stored = async || {
            let found = self.other.look_up(&id).await.unwrap();
            found.is_some_and(|found| matches!(found.record.state, RecordState::Completed(_)))
        };
        while !is_stored().await {
            assert!(Instant::now() < until, "the response is not stored");
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(self.verdict(id).await, Verdict::Rejected(Rejection::Completed(recording())));
    }

    /// Asserts for longer than a lease that these keys keep their owners.
    async fn assert_leases_last(&self, ids: &[RecordId]) {
        let until = Instant::now() + LEASE * 2;
        while Instant::now() < until {
            for id in ids {
                let found = self.other.look_up(id).await.unwrap().unwrap();
                assert!(!found.record.lease_expired(found.at), "a lease is lost");
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Fails if a claim, a renewal or a completion that the server cancels stays without effect for
/// good, if it counts as a permanent failure, or if it costs an operation its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_exceed_the_databases_statement_timeout_fail_for_the_moment() {
    let fixture = Fixture::new("statement_timeout").await;
    let [working, neighbor, refused] = [(); 3].map(|()| id());
    let attempt = fixture.proceed(working, &LONG).await;
    let beside = fixture.proceed(neighbor, &LONG).await;
    let mut session = PgConnection::connect(&fixture.url).await.unwrap();
    let lock = "SET statement_timeout = 0; BEGIN; LOCK TABLE idempotency_records IN SHARE MODE";
    sqlx::raw_sql(lock).execute(&mut session).await.unwrap();
    let error = fixture.other.begin(refused, digest(), &LONG).await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Deferred);
    sqlx::raw_sql("ROLLBACK").execute(&mut session).await.unwrap();

    fixture.await_response(working).await;
    assert!(matches!(
        fixture.verdict(neighbor).await,
        Verdict::Rejected(Rejection::InFlight { .. })
    ));
    assert_eq!(beside.complete(&recording()).await, AttemptOutcome::Stored);
    let attempt = fixture.proceed(refused, &LONG).await;
    let outcome = (attempt.number(), attempt.complete(&recording()).await);
    assert_eq!(outcome, (1, AttemptOutcome::Stored));
}

/// Fails if a record that another session has locked delays the renewal of other leases, or if its
/// own response is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_stays_locked_beyond_the_databases_lock_timeout_is_completed_later() {
    let fixture = Fixture::new("lock_timeout").await;
    let [locked, neighbor, second] = [(); 3].map(|()| id());
    let attempts =
        [fixture.proceed(locked, &POLICY).await, fixture.proceed(neighbor, &POLICY).await];
    let beside = fixture.proceed(second, &POLICY).await;
    let mut session = PgConnection::connect(&fixture.url).await.unwrap();
    sqlx::raw_sql("SET statement_timeout = 0; BEGIN").execute(&mut session).await.unwrap();
    sqlx::query("SELECT FROM idempotency_records WHERE id = $1 FOR UPDATE")
        .bind(locked.as_bytes().as_slice())
        .execute(&mut session)
        .await
        .unwrap();
    let [attempt, other] = attempts;
    let completing =
        tokio::spawn(async move { timeout(WAIT_LIMIT, attempt.complete(&recording())).await });
    fixture.assert_leases_last(&[neighbor, second]).await;
    // Its renewals skip it, so the lease has expired; a takeover would wait for the lock, too.
    let takeovers = [(); 4].map(|()| fixture.verdict(locked));
    for verdict in futures_util::future::join_all(takeovers).await {
        assert!(matches!(verdict, Verdict::Rejected(Rejection::InFlight { .. })), "{verdict:?}");
    }
    assert_eq!(other.complete(&recording()).await, AttemptOutcome::Stored);
    sqlx::raw_sql("ROLLBACK").execute(&mut session).await.unwrap();
    let ending = completing.await.unwrap().unwrap();
    assert!(matches!(ending, AttemptOutcome::Stored | AttemptOutcome::Deferred), "{ending:?}");
    fixture.await_response(locked).await;
    assert_eq!(beside.complete(&recording()).await, AttemptOutcome::Stored);
}

/// The store's own connections do not have the limits of the database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stores_own_connections_have_their_own_limits() {
    let (_, url) = store().await;
    sql(&url, format!("{}; {SLOW}", LIMIT.replace("LIMIT", "statement_timeout"))).await;
    let store = PostgresStore::connect(&url).await.unwrap();
    let runtime = Runtime::new(store.clone(), RuntimeOptions::default());
    let id = id();
    let Admission::Proceed(attempt) = runtime.begin(id, digest(), &POLICY).await.unwrap() else {
        panic!("the claim was rejected")
    };
    assert_eq!(attempt.complete(&recording()).await, AttemptOutcome::Stored);
    assert_eq!(store.purge(10).await.unwrap(), 0);
    assert_eq!(number(&url, "SELECT last_value FROM delayed").await, 2);
}
