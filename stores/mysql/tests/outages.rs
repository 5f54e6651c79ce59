//! Connections that break or hang, and servers that turn into replicas.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, RecordId, Store,
    protocol::{Claim, ClaimOutcome, Fence, Rejection, RenewOutcome, Renewal},
    store::TransactionClaim,
};
use idempotent_mysql::MySqlStore;
use sqlx::{Connection as _, Executor as _, MySqlConnection};
use test_support::servers::mariadb::{MariaDb, database_on, number, sql};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::helpers::{claim as request, key};

async fn claim(store: &MySqlStore) -> (RecordId, Claim) {
    let (id, claim) = (key(), request());
    assert_eq!(
        Store::claim(store, &id, &claim).await.unwrap(),
        ClaimOutcome::Granted { attempt: 1 }
    );
    (id, claim)
}

/// A migrated store on a server of its own, and the URL of its database.
async fn store_on(server: &MariaDb) -> (MySqlStore, String) {
    let url = database_on(&server.url("mysql")).await;
    let store = MySqlStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    (store, url)
}

/// Opens every connection of the pool.
async fn open_all_connections(store: &MySqlStore) {
    let claims = (0..30).map(|_| {
        let store = store.clone();
        async move { claim(&store).await }
    });
    claims.collect::<JoinSet<_>>().join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_server_causes_errors_only_while_it_lasts() {
    let server = MariaDb::start();
    let (store, _) = store_on(&server).await;
    open_all_connections(&store).await;
    let (first, claimed) = claim(&store).await;
    let lease = Lease { id: first, owner: claimed.owner };
    let renewal = [Renewal::new(lease, claimed.lease)];
    assert_eq!(store.renew(&renewal).await.unwrap(), [RenewOutcome::Renewed]);
    server.stop();
    let down = async { Store::claim(&store, &key(), &request()).await };
    let down = timeout(Duration::from_secs(60), down).await.unwrap().unwrap_err();
    assert!(down.is_transient(), "{down:?}");
    server.start_again();
    // After each restart all of the pool's connections are broken, and no call may fail because of
    // that.
    assert_eq!(store.renew(&renewal).await.unwrap(), [RenewOutcome::Renewed]);
    open_all_connections(&store).await;
    server.stop();
    server.start_again();
    let done = Bytes::from_static(b"done");
    assert_eq!(store.complete(&lease, &done).await.unwrap(), Fence::Passed);
    let replayed = Store::claim(&store, &lease.id, &request()).await.unwrap();
    assert_eq!(replayed, ClaimOutcome::Rejected(Rejection::Completed(done)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_sessions_are_replaced_transparently() {
    let server = MariaDb::without_fsync();
    let (store, url) = store_on(&server).await;
    let kill = async || {
        let mut connection = MySqlConnection::connect(&server.url("mysql")).await.unwrap();
        let (_, name) = url.rsplit_once('/').unwrap();
        let sessions = sqlx::query_scalar::<_, i64>(
            "SELECT CAST(id AS SIGNED) FROM information_schema.processlist WHERE db = ?",
        );
        for session in sessions.bind(name).fetch_all(&mut connection).await.unwrap() {
            let kill = sqlx::AssertSqlSafe(format!("KILL {session}"));
            let _ = connection.execute(kill).await;
        }
    };
    for _ in 0..5 {
        open_all_connections(&store).await;
        kill().await;
        let (id, claimed) = claim(&store).await;
        let lease = Lease { id, owner: claimed.owner };
        kill().await;
        assert_eq!(store.abandon(&lease, Abandoned::Hold).await.unwrap(), Fence::Passed);
    }
}

/// A short `wait_timeout` closes the idle connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_the_server_closes_after_a_while_are_replaced() {
    let server = MariaDb::with(&["--innodb-flush-method=nosync", "--wait-timeout=1"]);
    let (store, _) = store_on(&server).await;
    for _ in 0..2 {
        let (id, claimed) = claim(&store).await;
        let transaction = store.transactions().unwrap().begin().await.unwrap();
        transaction.roll_back().await;
        sleep(Duration::from_millis(2_500)).await;
        let lease = Lease { id, owner: claimed.owner };
        assert_eq!(store.release(&lease).await.unwrap(), Fence::Passed);
        let transaction = store.transactions().unwrap().begin().await.unwrap();
        transaction.roll_back().await;
    }
}

/// As after a failover: the old server refuses writes, and its connections are not used again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_becomes_read_only_fails_transiently_until_it_is_not() {
    let server = MariaDb::without_fsync();
    let (_, url) = store_on(&server).await;
    let (base, name) = url.rsplit_once('/').unwrap();
    let grant = format!("CREATE USER app; GRANT ALL ON {name}.* TO app");
    sql(&server.url("mysql"), grant).await;
    let store =
        MySqlStore::connect(&format!("{}/{name}", base.replace("test@", "app@"))).await.unwrap();
    let (id, claimed) = claim(&store).await;
    open_all_connections(&store).await;
    let before = number(&server.url("mysql"), CONNECTIONS).await;
    sql(&server.url("mysql"), "SET GLOBAL read_only = 1").await;
    let refused = Store::claim(&store, &key(), &request()).await.unwrap_err();
    assert!(refused.is_transient(), "{refused:?}");
    let transactions = store.transactions().unwrap();
    let refused =
        transactions.claim(&key(), &request(), Duration::ZERO).await.map(drop).unwrap_err();
    assert!(refused.is_transient(), "{refused:?}");
    let lease = Lease { id, owner: claimed.owner };
    let refused = store.complete(&lease, &Bytes::new()).await.unwrap_err();
    assert!(refused.is_transient(), "{refused:?}");
    assert!(number(&server.url("mysql"), CONNECTIONS).await > before, "no connection was replaced");
    sql(&server.url("mysql"), "SET GLOBAL read_only = 0").await;
    assert_eq!(store.complete(&lease, &Bytes::new()).await.unwrap(), Fence::Passed);
    let granted = transactions.claim(&key(), &request(), Duration::ZERO).await.unwrap();
    assert!(matches!(granted, TransactionClaim::Granted { .. }));
}

/// How many connections the server has accepted.
const CONNECTIONS: &str = "SELECT CAST(variable_value AS SIGNED) FROM \
     information_schema.global_status WHERE variable_name = 'CONNECTIONS'";

/// A server that refuses further connections fails transiently, and is used again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_a_free_connection_fails_transiently() {
    let server = MariaDb::with(&["--innodb-flush-method=nosync", "--max-connections=12"]);
    let (store, url) = store_on(&server).await;
    let mut others = Vec::new();
    // One more is accepted of a user with all privileges.
    while let Ok(connection) = MySqlConnection::connect(&url).await {
        others.push(connection);
    }
    let claims = (0..8).map(|_| {
        let store = store.clone();
        async move { Store::claim(&store, &key(), &request()).await }
    });
    for outcome in claims.collect::<JoinSet<_>>().join_all().await {
        assert!(
            outcome.as_ref().map_or_else(|error| error.is_transient(), |_| true),
            "{outcome:?}"
        );
    }
    let begun = store.transactions().unwrap().begin().await.map(drop);
    assert!(begun.is_err_and(|error| error.is_transient()));
    drop(others);
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while store.transactions().unwrap().begin().await.map(drop).is_err() {
        assert!(std::time::Instant::now() < deadline);
        sleep(Duration::from_millis(20)).await;
    }
}

/// The server is stopped by a signal, so that it accepts connections and does not respond.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_respond_fails_calls_after_a_while_and_then_at_once() {
    let server = MariaDb::without_fsync();
    let (store, _) = store_on(&server).await;
    let (id, claimed) = claim(&store).await;
    server.pause();
    let hanging = async { Store::claim(&store, &key(), &request()).await };
    let error = timeout(Duration::from_secs(20), hanging).await.unwrap().unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    let started = std::time::Instant::now();
    let error = Store::claim(&store, &key(), &request()).await.unwrap_err();
    assert!(error.is_transient() && started.elapsed() < Duration::from_millis(500), "{error:?}");
    server.resume();
    let lease = Lease { id, owner: claimed.owner };
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while store.complete(&lease, &Bytes::new()).await.is_err() {
        assert!(std::time::Instant::now() < deadline);
        sleep(Duration::from_millis(20)).await;
    }
}

/// A row that another transaction keeps locked delays its own step only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_of_a_locked_record_fails_transiently_and_passes_later() {
    let server = MariaDb::without_fsync();
    let (store, url) = store_on(&server).await;
    let (id, claimed) = claim(&store).await;
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let mut hold_lock = other.begin().await.unwrap();
    // Only this record: a scan would also lock the gaps between records.
    let lock = sqlx::query("SELECT id FROM idempotency_records WHERE id = ? FOR UPDATE");
    lock.bind(id.as_bytes().to_vec()).execute(&mut *hold_lock).await.unwrap();
    let lease = Lease { id, owner: claimed.owner };
    let renewal = [Renewal::new(lease, claimed.lease)];
    assert_eq!(store.renew(&renewal).await.unwrap(), [RenewOutcome::Unknown]);
    let waited = async { store.complete(&lease, &Bytes::new()).await };
    let error = timeout(Duration::from_secs(20), waited).await.unwrap().unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    // A replay of another key, and a new key, do not wait.
    let (other_id, other_claim) = claim(&store).await;
    let other_lease = Lease { id: other_id, owner: other_claim.owner };
    assert_eq!(store.complete(&other_lease, &Bytes::new()).await.unwrap(), Fence::Passed);
    hold_lock.rollback().await.unwrap();
    assert_eq!(store.complete(&lease, &Bytes::new()).await.unwrap(), Fence::Passed);
}
