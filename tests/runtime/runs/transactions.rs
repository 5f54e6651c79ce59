//! Runs with a transaction, on each database and with each claim.

use idempotent_core::{
    job::{ClaimMode, JobTransaction, TransactionError},
    store::memory::MemoryStore,
};
use sqlx::{PgConnection, SqliteConnection};

use super::{
    database::{Database, Effects},
    *,
};

macro_rules! on_each_database {
    ($($name:ident)*) => { $(
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                for claim in [ClaimMode::Lease, ClaimMode::Transaction] {
                    super::$name(SqliteConnection::database().await, JOB.with_claim(claim)).await;
                }
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                for claim in [ClaimMode::Lease, ClaimMode::Transaction] {
                    super::$name(PgConnection::database().await, JOB.with_claim(claim)).await;
                }
            }
        }
    )* };
}

on_each_database! {
    a_value_is_committed_with_its_effects
    a_failure_rolls_the_effects_back
    a_panic_rolls_the_effects_back
    a_dropped_run_leaves_no_effects
    a_kept_transaction_is_rolled_back
    a_connection_of_another_type_is_refused
    a_step_is_committed_with_the_effects_or_without_them
}

impl<C: Effects> Database<C> {
    async fn run<F>(&self, job: &Job, work: impl FnOnce(Run, JobTransaction<C>) -> F) -> Charged
    where
        F: Future<Output = Result<u32, Failure>>,
    {
        in_time(self.runtime.run_in_transaction(job, &scope(), &key("k"), &1, work)).await
    }

    async fn write(&self, job: &Job, end: Result<u32, Failure>) -> Charged {
        let work = |_, mut transaction: JobTransaction<C>| async move {
            transaction.connection().await?.write().await?;
            end
        };
        self.run(job, work).await
    }

    async fn replay(&self, job: &Job) -> Charged {
        self.run(job, |_, _| async { panic!("the work ran") }).await
    }

    /// Asserts that the next run is the first one with effects.
    async fn assert_free(mut self, job: &Job) {
        assert_eq!(self.connection.count().await, 0);
        assert_done(self.write(job, Ok(8)).await, 8, false);
        assert_eq!(self.connection.count().await, 1);
    }
}

async fn a_value_is_committed_with_its_effects<C: Effects>(mut database: Database<C>, job: Job) {
    assert_done(database.write(&job, Ok(7)).await, 7, false);
    assert_done(database.replay(&job).await, 7, true);
    assert_eq!(database.connection.count().await, 1);
    assert_done(replay(&database.runtime, &job).await, 7, true);
}

async fn a_failure_rolls_the_effects_back<C: Effects>(mut database: Database<C>, job: Job) {
    let retryable = Failure::Retryable("busy".to_owned());
    let error = database.write(&job, Err(retryable)).await.unwrap_err();
    assert!(matches!(error, RunError::Retryable { .. }), "{error:?}");
    let error = database.write(&job, Err(Failure::Other("reset".into()))).await.unwrap_err();
    assert!(matches!(error, RunError::Other { held: false, .. }), "{error:?}");
    let end = Failure::Final("declined".to_owned());
    let error = database.write(&job, Err(end)).await.unwrap_err();
    assert!(matches!(error, RunError::Final { replayed: false, .. }), "{error:?}");
    let error = database.replay(&job).await.unwrap_err();
    assert!(matches!(error, RunError::Final { replayed: true, .. }), "{error:?}");
    let unknown = Failure::Unknown("lost".to_owned());
    let other = Job::new("other").with_claim(job.claim);
    let error = database.write(&other, Err(unknown)).await.unwrap_err();
    assert!(matches!(error, RunError::Unknown { .. }), "{error:?}");
    let error = database.replay(&other).await.unwrap_err();
    assert!(matches!(error, RunError::Rejected(Rejection::Held { .. })), "{error:?}");
    assert_eq!(database.connection.count().await, 0);
}

async fn a_panic_rolls_the_effects_back<C: Effects>(database: Database<C>, job: Job) {
    let panics = database.run(&job, |_, mut transaction| async move {
        transaction.connection().await?.write().await?;
        panic!("the work panicked")
    });
    assert!(AssertUnwindSafe(panics).catch_unwind().await.is_err());
    database.assert_free(&job).await;
}

async fn a_dropped_run_leaves_no_effects<C: Effects>(database: Database<C>, job: Job) {
    let job = job.with_policy(with_lease(ms(300)).with_wait(ms(60_000)));
    let (written, wrote) = oneshot::channel();
    let run = database.run(&job, |_, mut transaction| async move {
        transaction.connection().await?.write().await?;
        written.send(()).unwrap();
        pending().await
    });
    tokio::select! {
        _ = run => panic!("the run has ended"),
        wrote = wrote => wrote.unwrap(),
    }
    database.assert_free(&job).await;
}

/// The task that keeps the transaction drops it once the run has ended its attempt: on SQLite the
/// transaction excludes every other writer.
async fn a_kept_transaction_is_rolled_back<C: Effects>(database: Database<C>, job: Job) {
    let (keeper, kept) = oneshot::channel::<JobTransaction<C>>();
    let keeper_task = tokio::spawn(async {
        let mut transaction = kept.await.unwrap();
        loop {
            match transaction.connection().await {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => return error,
            }
        }
    });
    let error = database.run(&job, |_, mut transaction| async move {
        transaction.connection().await?.write().await?;
        keeper.send(transaction).unwrap();
        Ok(7)
    });
    let error = error.await.unwrap_err();
    assert!(matches!(error, RunError::NotCommitted { transient: false, .. }), "{error:?}");
    let error = in_time(keeper_task).await.unwrap();
    assert!(matches!(error, TransactionError::Ended), "{error}");
    database.assert_free(&job).await;
}

async fn a_connection_of_another_type_is_refused<C: Effects>(database: Database<C>, job: Job) {
    let work = |_, mut transaction: JobTransaction<String>| async move {
        transaction.connection().await?;
        Ok::<u32, Failure>(7)
    };
    let error = database.runtime.run_in_transaction(&job, &scope(), &key("k"), &1, work).await;
    let error = error.unwrap_err();
    let RunError::Other { source, held: false, .. } = &error else { panic!("{error:?}") };
    assert!(matches!(source.downcast_ref(), Some(TransactionError::Connection)), "{error:?}");
    database.assert_free(&job).await;
}

/// A step that runs in the transaction is recorded with the effects. Within another step, the
/// transaction is refused.
async fn a_step_is_committed_with_the_effects_or_without_them<C: Effects>(
    database: Database<C>,
    job: Job,
) {
    let written = database.run(&job, |operation, mut transaction| async move {
        let step = operation.step("ledger");
        let write = async |connection: &mut C| {
            connection.write().await?;
            Ok::<_, Failure>(7)
        };
        step.run_in(&mut transaction, write).await?;
        Err(Failure::Retryable("busy".to_owned()))
    });
    written.await.unwrap_err();
    if job.claim == ClaimMode::Lease {
        let nested = database.run(&job, |operation, mut transaction| async move {
            let step = operation.step("charge");
            step.run(async |_| transaction.connection().await.map(drop).map_err(Failure::from))
                .await?;
            Ok(7)
        });
        let error = nested.await.unwrap_err();
        let RunError::Other { source, .. } = &error else { panic!("{error:?}") };
        assert!(matches!(source.downcast_ref(), Some(TransactionError::InStep)), "{error:?}");
    }
    database.assert_free(&job).await;
}

/// The effects of an attempt that has lost its key are rolled back, whatever it returns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_run_leaves_no_effects() {
    for end in [Ok(7), Err(Failure::Final("declined".to_owned()))] {
        let mut database = PgConnection::database().await;
        let Database { runtime, connection, .. } = &mut database;
        let runtime = &*runtime;
        let work = |_, mut transaction: JobTransaction<PgConnection>| async move {
            transaction.connection().await?.write().await?;
            let expire = "UPDATE idempotency_records SET lease_until = 0";
            assert_eq!(sqlx::query(expire).execute(&mut *connection).await?.rows_affected(), 1);
            assert_done(succeed(runtime, &JOB, 8).await, 8, false);
            end
        };
        let fenced = runtime.run_in_transaction(&JOB, &scope(), &key("k"), &1, work).await;
        assert_done(fenced, 8, true);
        assert_eq!(database.connection.count().await, 0);
    }
}

/// The future moves between threads, with steps in the transaction too, and borrows nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_with_a_transaction_can_be_spawned() {
    let database = PgConnection::database().await;
    let run = database.runtime.run_in_transaction(
        &JOB,
        &scope(),
        &key("k"),
        &1,
        |operation, mut transaction| async move {
            let write = async |connection: &mut PgConnection| {
                connection.write().await?;
                Ok::<_, Failure>(7)
            };
            operation.step("ledger").run_in(&mut transaction, write).await
        },
    );
    assert_done(tokio::spawn(run).await.unwrap(), 7, false);
}

#[tokio::test]
async fn a_store_without_transactions_is_refused_before_the_claim() {
    for claim in [ClaimMode::Lease, ClaimMode::Transaction] {
        let runtime = Runtime::new(MemoryStore::new(), no_purge());
        let work = |_, _: JobTransaction<PgConnection>| ready(Ok::<u32, Failure>(7));
        let job = JOB.with_claim(claim);
        let refused = runtime.run_in_transaction(&job, &scope(), &key("k"), &1, work).await;
        let error = refused.unwrap_err();
        assert!(matches!(error, RunError::Store { .. }) && !error.is_transient(), "{error:?}");
        assert!(runtime.look_up(&record_id(&job)).await.unwrap().is_none());
    }
}
