//! Connections that break or hang.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, RecordId, Store,
    protocol::{Claim, ClaimOutcome, Fence, Rejection, RenewOutcome, Renewal},
};
use idempotent_postgres::PostgresStore;
use tokio::{task::JoinSet, time::timeout};

use crate::helpers::{id, request, sql};
use test_support::servers::postgres::Postgres;

async fn claim(store: &PostgresStore) -> (RecordId, Claim) {
    let (id, claim) = (id(), request());
    assert_eq!(store.claim(&id, &claim).await.unwrap(), ClaimOutcome::Granted { attempt: 1 });
    (id, claim)
}

/// Opens every connection of the pool.
async fn open_all_connections(store: &PostgresStore) {
    let claims = (0..30).map(|_| {
        let store = store.clone();
        async move { claim(&store).await }
    });
    claims.collect::<JoinSet<_>>().join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_server_causes_errors_only_while_it_lasts() {
    let server = Postgres::start();
    let store = PostgresStore::connect(&server.url("postgres")).await.unwrap();
    store.migrate().await.unwrap();
    open_all_connections(&store).await;
    let (first, claimed) = claim(&store).await;
    let lease = Lease { id: first, owner: claimed.owner };
    assert_eq!(
        store.renew(&[Renewal::new(lease, claimed.lease)]).await.unwrap(),
        [RenewOutcome::Renewed]
    );

    server.stop();
    let down = timeout(Duration::from_secs(60), store.claim(&id(), &request()))
        .await
        .unwrap()
        .unwrap_err();
    assert!(down.is_transient(), "{down:?}");
    assert_restarts_go_unnoticed(&server, &store, lease, &claimed).await;
}

/// After each restart all of the pool's connections are broken, and no call may fail because of
/// that.
async fn assert_restarts_go_unnoticed(
    server: &Postgres,
    store: &PostgresStore,
    lease: Lease,
    claimed: &Claim,
) {
    server.start_again();
    assert_eq!(
        store.renew(&[Renewal::new(lease, claimed.lease)]).await.unwrap(),
        [RenewOutcome::Renewed]
    );
    open_all_connections(store).await;
    server.stop();
    server.start_again();
    assert_eq!(store.complete(&lease, &Bytes::from_static(b"done")).await.unwrap(), Fence::Passed);
    let (id, claimed) = claim(store).await;
    open_all_connections(store).await;
    server.stop();
    server.start_again();
    assert_eq!(store.release(&Lease { id, owner: claimed.owner }).await.unwrap(), Fence::Passed);
    let replayed = store.claim(&lease.id, &request()).await.unwrap();
    assert_eq!(replayed, ClaimOutcome::Rejected(Rejection::Completed(Bytes::from_static(b"done"))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminated_sessions_are_replaced_transparently() {
    let (store, url) = crate::helpers::store().await;
    for _ in 0..5 {
        open_all_connections(&store).await;
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE application_name = 'idempotency' AND datname = current_database()";
        sql(&url, end).await;
        let (id, claimed) = claim(&store).await;
        let lease = Lease { id, owner: claimed.owner };
        sql(&url, end).await;
        assert_eq!(store.abandon(&lease, Abandoned::Hold).await.unwrap(), Fence::Passed);
    }
}

#[tokio::test]
async fn a_call_to_a_server_that_does_not_respond_times_out() {
    let (store, url) = crate::helpers::store().await;
    let (id, claimed) = claim(&store).await;
    let mut other = <sqlx::PgConnection as sqlx::Connection>::connect(&url).await.unwrap();
    let mut hold_lock = sqlx::Connection::begin(&mut other).await.unwrap();
    sqlx::raw_sql("SELECT * FROM idempotency_records FOR UPDATE")
        .execute(&mut *hold_lock)
        .await
        .unwrap();
    let lease = Lease { id, owner: claimed.owner };
    let error = timeout(Duration::from_secs(60), store.complete(&lease, &Bytes::new()))
        .await
        .unwrap()
        .unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    hold_lock.rollback().await.unwrap();
    assert_eq!(store.complete(&lease, &Bytes::new()).await.unwrap(), Fence::Passed);
}
