//! Runs that begin inside the work of another run, whose transaction may be the store's only
//! writer.

use std::time::{Duration, Instant};

use idempotent_core::job::{ClaimMode, JobTransaction};
use sqlx::{PgConnection, SqliteConnection};

use super::{
    database::{Database, Effects},
    *,
};

const INNER: Job = Job::new("inner");

async fn run_inner(runtime: &Runtime) -> Charged {
    succeed(runtime, &INNER, 1).await
}

/// Runs a job whose work writes in its transaction, and then does something else.
async fn run_around<C: Effects, F>(database: &Database<C>, claim: ClaimMode, rest: F) -> Charged
where
    F: AsyncFnOnce(),
{
    let job = JOB.with_claim(claim);
    let work = |_, mut transaction: JobTransaction<C>| async move {
        transaction.connection().await?.write().await?;
        rest().await;
        Ok::<_, Failure>(7)
    };
    let run = database.runtime.run_in_transaction(&job, &scope(), &key("k"), &1, work);
    in_time(run).await
}

fn assert_excluded(result: Charged) {
    let Err(RunError::Store { source, .. }) = result else { panic!("{result:?}") };
    let cause = std::error::Error::source(&source).unwrap().to_string();
    assert!(!source.is_transient() && cause.contains("the only writer"), "{cause}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_a_run_inside_an_open_transaction_fails_at_once() {
    for claim in [ClaimMode::Lease, ClaimMode::Transaction] {
        let mut database = SqliteConnection::database().await;
        let ran = run_around(&database, claim, async || {
            let began = Instant::now();
            assert_excluded(run_inner(&database.runtime).await);
            assert_excluded(run_around(&database, claim, async || {}).await);
            assert!(database.runtime.transaction().await.is_err());
            assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        });
        assert_done(ran.await, 7, false);
        assert_eq!(database.connection.count().await, 1);
        assert_done(run_inner(&database.runtime).await, 1, false);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_a_run_before_the_transaction_of_another_one_works() {
    let database = SqliteConnection::database().await;
    let runtime = database.runtime.clone();
    let work = |_, mut transaction: JobTransaction<SqliteConnection>| async move {
        assert_done(run_inner(&runtime).await, 1, false);
        transaction.connection().await?.write().await?;
        Ok::<_, Failure>(7)
    };
    let run = database.runtime.run_in_transaction(&JOB, &scope(), &key("k"), &1, work);
    assert_done(in_time(run).await, 7, false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_runs_of_one_task_take_turns() {
    let database = SqliteConnection::database().await;
    let run = async |name| {
        let job = Job::new(name).with_claim(ClaimMode::Transaction);
        let work = |_, mut transaction: JobTransaction<SqliteConnection>| async move {
            transaction.connection().await?.write().await?;
            tokio::time::sleep(ms(200)).await;
            Ok::<_, Failure>(7)
        };
        in_time(database.runtime.run_in_transaction(&job, &scope(), &key("k"), &1, work)).await
    };
    let (one, other) = tokio::join!(run("one"), run("other"));
    assert_done(one, 7, false);
    assert_done(other, 7, false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_a_run_inside_an_open_transaction_works() {
    for claim in [ClaimMode::Lease, ClaimMode::Transaction] {
        let database = PgConnection::database().await;
        let ran = run_around(&database, claim, async || {
            assert_done(run_inner(&database.runtime).await, 1, false);
        });
        assert_done(ran.await, 7, false);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_a_run_in_another_database_inside_an_open_transaction_works() {
    for claim in [ClaimMode::Lease, ClaimMode::Transaction] {
        let (database, other) =
            (SqliteConnection::database().await, SqliteConnection::database().await);
        let ran = run_around(&database, claim, async || {
            assert_done(run_inner(&other.runtime).await, 1, false);
        });
        assert_done(ran.await, 7, false);
    }
}
