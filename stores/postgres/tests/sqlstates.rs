//! Errors of the server, provoked on a real one: whether they are temporary, and what becomes of
//! the connection.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;
use idempotent_core::{
    Abandoned, Lease, Store, StoreError,
    protocol::{ClaimOutcome, Fence, Resolution, ResolveOutcome},
    store::TransactionClaim,
};
use idempotent_postgres::PostgresStore;
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres as Database,
    pool::PoolConnection, postgres::PgPoolOptions,
};
use test_support::decision;
use test_support::servers::postgres::{Postgres, shared};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    time::sleep,
};

use crate::helpers::{database, id, request, sql, store, with};

const GRANTED: ClaimOutcome = ClaimOutcome::Granted { attempt: 1 };

/// A name that leads to one server and later to another. Open connections stay where they are.
struct Name {
    port: u16,
    target: Arc<AtomicU16>,
}

impl Name {
    async fn leading_to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let name = Self {
            port: listener.local_addr().unwrap().port(),
            target: Arc::new(AtomicU16::new(port)),
        };
        let target = name.target.clone();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let port = target.load(Ordering::SeqCst);
                tokio::spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await {
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        name
    }

    fn lead_to(&self, port: u16) {
        self.target.store(port, Ordering::SeqCst);
    }
}

/// A claim that is committed by itself, a transaction, and a claim in a transaction.
async fn calls(store: &PostgresStore) -> [Result<(), StoreError>; 3] {
    let transactions = store.transactions().unwrap();
    let claimed = store.claim(&id(), &request()).await;
    let claimed = claimed.map(|outcome| assert_eq!(outcome, GRANTED));
    let begun = match transactions.begin().await {
        Ok(transaction) => {
            assert!(transaction.roll_back().await);
            Ok(())
        }
        Err(error) => Err(error),
    };
    let in_transaction = match transactions.claim(&id(), &request(), Duration::ZERO).await {
        Ok(TransactionClaim::Granted { transaction, .. }) => {
            assert!(transaction.roll_back().await);
            Ok(())
        }
        Ok(TransactionClaim::Rejected(rejection)) => panic!("{rejection:?}"),
        Err(error) => Err(error),
    };
    [claimed, begun, in_transaction]
}

async fn assert_temporary(store: &PostgresStore) {
    for called in calls(store).await {
        let error = called.expect_err("the call succeeded");
        assert!(error.is_transient(), "{error:?}");
    }
}

async fn assert_success(store: &PostgresStore) {
    for called in calls(store).await {
        called.unwrap();
    }
}

/// A store with its own connections, and one with connections of the application.
async fn both(url: &str) -> [PostgresStore; 2] {
    let pool = PgPoolOptions::new().max_connections(5).connect(url).await.unwrap();
    let own = connected(async || PostgresStore::connect(url).await).await;
    own.migrate().await.unwrap();
    [own, connected(async || PostgresStore::from_pool(pool.clone()).await).await]
}

/// Connects. On a busy machine the server may end a session early whose idle time is limited.
async fn connected(connect: impl AsyncFn() -> Result<PostgresStore, StoreError>) -> PostgresStore {
    for _ in 0..20 {
        match connect().await {
            Err(error) if error.is_transient() => {}
            connected => return connected.unwrap(),
        }
    }
    panic!("the server ends each session too early");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_on_a_standby_serve_no_call_after_the_primary_is_back() {
    let primary = Postgres::start();
    let name = Name::leading_to(primary.port).await;
    let stores = both(&format!("postgres://postgres@127.0.0.1:{}/postgres", name.port)).await;
    let standby = primary.standby();
    name.lead_to(standby.port);
    primary.stop();
    for store in &stores {
        join_all((0..5).map(|_| assert_temporary(store))).await;
        // Reads succeed on a standby, and leave its sessions in the pool.
        for read in join_all((0..20).map(|_| async { store.look_up(&id()).await })).await {
            read.unwrap();
        }
    }
    primary.start_again();
    name.lead_to(primary.port);
    for store in &stores {
        assert_success(store).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_was_idle_for_too_long_has_failed_temporarily() {
    let (_, url) = store().await;
    let limited = with(&url, "options=-c%20idle_in_transaction_session_timeout%3D200");
    for store in both(&limited).await {
        let transactions = store.transactions().unwrap();
        let claim = request();
        let id = id();
        let claimed = transactions.claim(&id, &claim, Duration::ZERO).await.unwrap();
        let TransactionClaim::Granted { mut transaction, .. } = claimed else {
            panic!("{claimed:?}")
        };
        sleep(Duration::from_millis(1_000)).await;
        let lease = Lease { id, owner: claim.owner };
        let error = transaction.complete(&lease, &Bytes::new()).await.unwrap_err();
        assert!(error.is_transient(), "{error:?}");
        transaction.roll_back().await;
        assert_success(&store).await;
    }
}

/// The server says that it ended the session before it read the statement, which is then sent
/// again even where a second execution would have another result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_end_of_a_claim_succeeds_after_the_server_has_ended_idle_sessions() {
    let (_, url) = store().await;
    let limited = with(&url, "options=-c%20idle_session_timeout%3D1000");
    for store in both(&limited).await {
        let claimed = async || {
            let (id, claim) = (id(), request().with_abandoned(Abandoned::Hold));
            assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
            Lease { id, owner: claim.owner }
        };
        let [completed, released, abandoned] = [claimed().await, claimed().await, claimed().await];
        let idle = || sleep(Duration::from_millis(2_500));
        idle().await;
        assert_eq!(store.complete(&completed, &Bytes::new()).await.unwrap(), Fence::Passed);
        idle().await;
        assert_eq!(store.release(&released).await.unwrap(), Fence::Passed);
        idle().await;
        assert_eq!(store.abandon(&abandoned, Abandoned::Hold).await.unwrap(), Fence::Passed);
        idle().await;
        let resolved = store
            .resolve(
                &abandoned.id,
                &abandoned.owner,
                &Resolution::Release,
                &decision(&abandoned.id),
            )
            .await;
        assert_eq!(resolved.unwrap(), ResolveOutcome::Resolved);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_does_not_exist_while_it_is_restored_is_a_temporary_failure() {
    let url = database().await;
    let stores = both(&url).await;
    let name = url.rsplit_once('/').unwrap().1.split('?').next().unwrap();
    let rename = async |from: &str, to: &str| {
        let mut connection = PgConnection::connect(shared()).await.unwrap();
        let end = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{from}'"
        );
        for _ in 0..100 {
            sqlx::raw_sql(AssertSqlSafe(end.clone())).execute(&mut connection).await.unwrap();
            let rename = AssertSqlSafe(format!("ALTER DATABASE {from} RENAME TO {to}"));
            if sqlx::raw_sql(rename).execute(&mut connection).await.is_ok() {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("the database cannot be renamed");
    };
    let away = format!("{name}_away");
    rename(name, &away).await;
    for store in &stores {
        assert_temporary(store).await;
    }
    rename(&away, name).await;
    for store in &stores {
        assert_success(store).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_are_prepared_again_after_a_migration_has_changed_their_results() {
    let (_, url) = store().await;
    for (store, size) in both(&url).await.iter().zip([100, 200]) {
        join_all((0..8).map(|_| assert_success(store))).await;
        sql(&url, format!("ALTER TABLE idempotency_records ALTER reference TYPE varchar({size})"))
            .await;
        for _ in 0..8 {
            assert_success(store).await;
        }
    }
}

/// A claim first reads, which finds one of two connections stale, and closes those that are idle.
/// The other one returns to the pool before the transaction begins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_in_use_during_a_migration_fails_no_claim() {
    let (_, url) = store().await;
    let shared = Arc::new(OnceLock::<PgPool>::new());
    let in_use = Arc::new(Mutex::new(None::<PoolConnection<Database>>));
    let returning = (shared.clone(), in_use.clone());
    let options = PgPoolOptions::new().max_connections(2).after_connect(move |_, _| {
        let (shared, in_use) = returning.clone();
        Box::pin(async move {
            let returned = in_use.lock().unwrap().take();
            if let Some(connection) = returned {
                drop(connection);
                while shared.get().unwrap().num_idle() == 0 {
                    sleep(Duration::from_millis(1)).await;
                }
            }
            Ok(())
        })
    });
    let pool = options.connect(&url).await.unwrap();
    shared.set(pool.clone()).unwrap();
    let store = PostgresStore::from_pool(pool.clone()).await.unwrap();
    let transactions = store.transactions().unwrap();
    let claim = async || match transactions.claim(&id(), &request(), Duration::ZERO).await.unwrap()
    {
        TransactionClaim::Granted { transaction, .. } => transaction,
        TransactionClaim::Rejected(rejection) => panic!("{rejection:?}"),
    };
    // Both connections have the statements.
    let first = claim().await;
    let second = claim().await;
    assert!(first.roll_back().await && second.roll_back().await);
    *in_use.lock().unwrap() = Some(pool.acquire().await.unwrap());
    sql(&url, "ALTER TABLE idempotency_records ALTER reference TYPE varchar(100)").await;
    assert!(claim().await.roll_back().await);
    assert!(in_use.lock().unwrap().is_none(), "the claim has opened no connection");
}

/// A handler has made its session read-only, which in a pool of the application stays so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_session_does_not_return_to_the_pool() {
    let (_, url) = store().await;
    let pool = PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
    let store = PostgresStore::from_pool(pool.clone()).await.unwrap();
    let set = "SET SESSION default_transaction_read_only = on";
    sqlx::raw_sql(set).execute(&mut *pool.acquire().await.unwrap()).await.unwrap();
    assert_success(&store).await;
}
