//! Claims that are part of their handler's transaction.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, RecordId, Store,
    protocol::{ClaimOutcome, Fence, Rejection},
    store::{Transaction, TransactionClaim},
};
use idempotent_mysql::MySqlStore;
use sqlx::Connection as _;
use test_support::servers::mariadb::sql;
use tokio::time::sleep;

use crate::helpers::{claim as request, key, store};

const DONE: Bytes = Bytes::from_static(b"done");

async fn claim(store: &MySqlStore, id: &RecordId, wait: Duration) -> (Lease, TransactionClaim) {
    let claim = request();
    let claimed = store.transactions().unwrap().claim(id, &claim, wait).await.unwrap();
    (Lease { id: *id, owner: claim.owner }, claimed)
}

async fn granted(store: &MySqlStore, id: &RecordId) -> (Lease, Box<dyn Transaction>) {
    match claim(store, id, Duration::ZERO).await {
        (lease, TransactionClaim::Granted { transaction, .. }) => (lease, transaction),
        (_, TransactionClaim::Rejected(outcome)) => panic!("{outcome:?}"),
    }
}

fn rejected((_, claimed): (Lease, TransactionClaim)) -> Rejection {
    match claimed {
        TransactionClaim::Rejected(rejection) => rejection,
        TransactionClaim::Granted { .. } => panic!("the claim was granted"),
    }
}

async fn stores() -> ([MySqlStore; 2], String) {
    let (store, url) = store().await;
    let other = MySqlStore::connect(&url).await.unwrap();
    ([store, other], url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_of_another_process_is_in_flight_at_once_or_waits_for_the_replay() {
    let ([store, other], _) = stores().await;
    let id = key();
    let (lease, transaction) = granted(&store, &id).await;
    for wait in [Duration::ZERO, Duration::from_millis(100)] {
        let duplicate = rejected(claim(&other, &id, wait).await);
        assert!(matches!(duplicate, Rejection::InFlight { .. }), "{duplicate:?}");
    }
    let committed = Store::claim(&other, &id, &request()).await.unwrap();
    assert_eq!(committed, ClaimOutcome::IN_FLIGHT);
    let waits = tokio::spawn(async move { claim(&other, &id, Duration::from_secs(60)).await });
    sleep(Duration::from_millis(300)).await;
    assert!(!waits.is_finished(), "the duplicate did not wait");
    assert_eq!(transaction.complete_and_commit(&lease, &DONE).await.unwrap(), Fence::Passed);
    assert_eq!(rejected(waits.await.unwrap()), Rejection::Completed(DONE));
}

/// A transaction that has looked for a missing record locks the place of many keys. None of them is
/// in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_whose_place_is_locked_by_a_foreign_transaction_is_not_in_flight() {
    let (store, url) = store().await;
    let mut foreign = sqlx::MySqlConnection::connect(&url).await.unwrap();
    let look = "START TRANSACTION; \
                SELECT id FROM idempotency_records WHERE id = repeat('m', 32) FOR UPDATE";
    sqlx::raw_sql(look).execute(&mut foreign).await.unwrap();
    let transactions = store.transactions().unwrap();
    let claimed = transactions.claim(&key(), &request(), Duration::ZERO).await;
    let error = claimed.map(|_| ()).unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    let error = Store::claim(&store, &key(), &request()).await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    let waits = tokio::spawn({
        let store = store.clone();
        async move { granted(&store, &key()).await }
    });
    sleep(Duration::from_millis(20)).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut foreign).await.unwrap();
    let (_, transaction) = waits.await.unwrap();
    transaction.roll_back().await;
}

/// More claims of a key that is in flight than there are connections delay no claim of another key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_of_an_open_transaction_do_not_use_up_the_connections() {
    let ([store, other], _) = stores().await;
    let id = key();
    let (_lease, transaction) = granted(&store, &id).await;
    let duplicates: Vec<_> = (0..40)
        .map(|_| {
            let other = other.clone();
            tokio::spawn(async move { Store::claim(&other, &id, &request()).await.unwrap() })
        })
        .collect();
    for _ in 0..20 {
        let outcome = Store::claim(&other, &key(), &request()).await.unwrap();
        assert_eq!(outcome, ClaimOutcome::Granted { attempt: 1 });
    }
    for duplicate in duplicates {
        assert_eq!(duplicate.await.unwrap(), ClaimOutcome::IN_FLIGHT);
    }
    transaction.roll_back().await;
    assert_eq!(
        Store::claim(&other, &id, &request()).await.unwrap(),
        ClaimOutcome::Granted { attempt: 1 }
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_undone_can_be_completed_again() {
    let (store, url) = store().await;
    sql(&url, "CREATE TABLE effects (n int) ENGINE = InnoDB").await;
    let (lease, mut transaction) = granted(&store, &key()).await;
    for _ in 0..3 {
        let connection =
            transaction.connection_mut().downcast_mut::<sqlx::MySqlConnection>().unwrap();
        sqlx::query("INSERT INTO effects VALUES (1)").execute(connection).await.unwrap();
        assert_eq!(transaction.complete(&lease, &DONE).await.unwrap(), Fence::Passed);
        transaction.undo().await.unwrap();
    }
    assert_eq!(transaction.complete_and_commit(&lease, &DONE).await.unwrap(), Fence::Passed);
    let effects = "SELECT count(*) FROM effects";
    assert_eq!(test_support::servers::mariadb::number(&url, effects).await, 0);
}

/// Both attempts end with a held record, which only an operator releases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_can_be_held_in_its_transaction() {
    let (store, _) = store().await;
    let (lease, mut transaction) = granted(&store, &key()).await;
    assert_eq!(transaction.abandon(&lease, Abandoned::Hold).await.unwrap(), Fence::Passed);
    transaction.commit().await.unwrap();
    let duplicate = rejected(claim(&store, &lease.id, Duration::ZERO).await);
    assert!(matches!(duplicate, Rejection::Held { .. }), "{duplicate:?}");
}

/// The handler's snapshot begins with its own first read, so that it sees what an earlier attempt
/// with the key has committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_reads_what_was_committed_before_its_first_read() {
    let (store, url) = store().await;
    sql(&url, "CREATE TABLE effects (n int) ENGINE = InnoDB").await;
    let (_, mut transaction) = granted(&store, &key()).await;
    sql(&url, "INSERT INTO effects VALUES (1)").await;
    let connection = transaction.connection_mut().downcast_mut::<sqlx::MySqlConnection>().unwrap();
    let count = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM effects");
    assert_eq!(count.fetch_one(connection).await.unwrap(), 1);
    transaction.roll_back().await;
}
