//! Claims that are part of their handler's transaction: the lock of the key, and the only version
//! of the record.

use std::{num::NonZeroU16, time::Duration};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, RecordId, Store,
    protocol::{Claim, ClaimOutcome, Fence, Note, Rejection},
    store::{Transaction, TransactionClaim},
};
use idempotent_postgres::PostgresStore;
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::time::sleep;

use crate::helpers::{id, number, request, sql, store, store_with, with};

const DONE: Bytes = Bytes::from_static(b"done");

pub(super) async fn claim(
    store: &PostgresStore,
    id: &RecordId,
    wait: Duration,
) -> (Lease, TransactionClaim) {
    let claim = request();
    let claimed = store.transactions().unwrap().claim(id, &claim, wait).await.unwrap();
    (Lease { id: *id, owner: claim.owner }, claimed)
}

pub(super) async fn granted(store: &PostgresStore, id: &RecordId) -> (Lease, Box<dyn Transaction>) {
    match claim(store, id, Duration::ZERO).await {
        (lease, TransactionClaim::Granted { transaction, .. }) => (lease, transaction),
        (_, TransactionClaim::Rejected(outcome)) => panic!("{outcome:?}"),
    }
}

pub(super) fn rejected((_, claimed): (Lease, TransactionClaim)) -> Rejection {
    match claimed {
        TransactionClaim::Rejected(rejection) => rejection,
        TransactionClaim::Granted { .. } => panic!("the claim was granted"),
    }
}

/// A second store on the same table, like that of another process.
pub(super) async fn stores() -> ([PostgresStore; 2], String) {
    let (store, url) = store().await;
    let other = PostgresStore::connect(&url).await.unwrap();
    ([store, other], url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_claimed_and_completed_in_a_transaction_has_one_version() {
    let (store, url) = store().await;
    let (lease, mut transaction) = granted(&store, &id()).await;
    // Completions that are undone leave nothing in the way of the last one.
    for _ in 0..2 {
        assert_eq!(transaction.complete(&lease, &DONE).await.unwrap(), Fence::Passed);
        transaction.undo().await.unwrap();
    }
    assert_eq!(transaction.complete_and_commit(&lease, &DONE).await.unwrap(), Fence::Passed);
    let (lease, transaction) = granted(&store, &id()).await;
    assert_eq!(transaction.complete_and_commit(&lease, &DONE).await.unwrap(), Fence::Passed);
    // If the second record had been updated, its last version would not follow the first record.
    let place = "split_part(trim(both '()' from ctid::text), ',', 2)::bigint";
    let apart = format!("SELECT max({place}) - min({place}) FROM idempotency_records");
    assert_eq!(number(&url, apart).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_of_another_process_is_in_flight_at_once_or_waits_for_the_replay() {
    let ([store, other], _) = stores().await;
    let id = id();
    let (lease, transaction) = granted(&store, &id).await;
    let duplicate = rejected(claim(&other, &id, Duration::ZERO).await);
    assert!(matches!(duplicate, Rejection::InFlight { .. }), "{duplicate:?}");
    let duplicate = rejected(claim(&other, &id, Duration::from_millis(100)).await);
    assert!(matches!(duplicate, Rejection::InFlight { .. }), "{duplicate:?}");
    let waits = tokio::spawn(async move { claim(&other, &id, Duration::from_secs(60)).await });
    sleep(Duration::from_millis(300)).await;
    assert!(!waits.is_finished(), "the duplicate did not wait");
    assert_eq!(transaction.complete_and_commit(&lease, &DONE).await.unwrap(), Fence::Passed);
    assert_eq!(rejected(waits.await.unwrap()), Rejection::Completed(DONE));
    // Replays take no turns.
    let replays = [(); 8].map(|()| claim(&store, &id, Duration::ZERO));
    for replay in futures_util::future::join_all(replays).await {
        assert_eq!(rejected(replay), Rejection::Completed(DONE));
    }
}

/// The schema of a table may be named, or found in the `search_path`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_the_same_name_in_other_schemas_have_other_locks() {
    let (store, url) = store().await;
    sql(&url, "CREATE SCHEMA other; CREATE SCHEMA named".to_owned()).await;
    let options =
        format!("{}options=-c%20search_path%3D", if url.contains('?') { "&" } else { "?" });
    let other = PostgresStore::connect(&format!("{url}{options}other")).await.unwrap();
    let named = PostgresStore::options().schema("named").connect(&url).await.unwrap();
    other.migrate().await.unwrap();
    named.migrate().await.unwrap();
    let id = id();
    let mut kept = Vec::new();
    for store in [&store, &other, &named] {
        kept.push(granted(store, &id).await);
        let duplicate = store.claim(&id, &request()).await.unwrap();
        assert!(
            matches!(duplicate, ClaimOutcome::Rejected(Rejection::InFlight { .. })),
            "{duplicate:?}"
        );
    }
    let also_named = PostgresStore::connect(&format!("{url}{options}named")).await.unwrap();
    let duplicate = rejected(claim(&also_named, &id, Duration::ZERO).await);
    assert!(matches!(duplicate, Rejection::InFlight { .. }), "{duplicate:?}");
}

/// A savepoint that contains the first note contains the record too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_savepoint_that_a_handler_undoes_does_not_take_its_record_away() {
    let ([store, other], _url) = stores().await;
    let note = Note::input(Bytes::from_static(b"input"));
    for again in [false, true] {
        let id = id();
        let (lease, mut transaction) = granted(&store, &id).await;
        for _ in 0..2 {
            let (savepoint, undo) = ("SAVEPOINT one", "ROLLBACK TO one");
            sqlx::raw_sql(savepoint).execute(connection(&mut transaction)).await.unwrap();
            assert_eq!(transaction.note(&lease, &note).await.unwrap(), Fence::Passed);
            sqlx::raw_sql(undo).execute(connection(&mut transaction)).await.unwrap();
        }
        if again {
            assert_eq!(transaction.note(&lease, &note).await.unwrap(), Fence::Passed);
        }
        assert_eq!(transaction.complete_and_commit(&lease, &DONE).await.unwrap(), Fence::Passed);
        let replay = rejected(claim(&other, &id, Duration::ZERO).await);
        assert_eq!(replay, Rejection::Completed(DONE));
        let (lease, mut transaction) = granted(&store, &crate::helpers::id()).await;
        sqlx::raw_sql("SAVEPOINT one").execute(connection(&mut transaction)).await.unwrap();
        assert_eq!(transaction.note(&lease, &note).await.unwrap(), Fence::Passed);
        sqlx::raw_sql("ROLLBACK TO one").execute(connection(&mut transaction)).await.unwrap();
        assert_eq!(transaction.abandon(&lease, Abandoned::Hold).await.unwrap(), Fence::Passed);
        transaction.commit().await.unwrap();
        let held = rejected(claim(&other, &lease.id, Duration::ZERO).await);
        assert!(matches!(held, Rejection::Held { .. }), "{held:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_rollback_the_next_attempt_is_the_first() {
    let ([store, other], url) = stores().await;
    let id = id();
    let (lease, mut transaction) = granted(&store, &id).await;
    let note = Note::input(Bytes::from_static(b"input"));
    assert_eq!(transaction.note(&lease, &note).await.unwrap(), Fence::Passed);
    transaction.roll_back().await;
    let TransactionClaim::Granted { attempt, transaction } =
        claim(&other, &id, Duration::ZERO).await.1
    else {
        panic!("the claim was rejected")
    };
    assert_eq!(attempt, 1);
    drop(transaction);
    assert_eq!(number(&url, "SELECT count(*) FROM idempotency_records").await, 0);
}

/// Inserts the record when it claims, as the releases before this one did.
pub(super) async fn claim_as_before(
    connection: &mut PgConnection,
    id: &RecordId,
    claim: &Claim,
) -> u64 {
    let insert = "INSERT INTO idempotency_records (id, state, fingerprint, owner, attempt, \
                  abandoned, lease, lease_until, first_seen, expires_at) \
                  VALUES ($1, 1, $2, $3, 1, 1, 30000, 9999999999999, 1, 9999999999999) \
                  ON CONFLICT (id) DO NOTHING";
    let insert = sqlx::query(insert)
        .bind(id.as_bytes().to_vec())
        .bind(claim.fingerprint.to_bytes().to_vec())
        .bind(claim.owner.as_bytes().to_vec());
    insert.execute(connection).await.unwrap().rows_affected()
}

/// Rolling deployments: a process of an earlier release takes no lock, and inserts the record when
/// it claims.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_the_previous_statements_one_attempt_commits() {
    let (store, url) = store().await;
    let effect = "CREATE TABLE effects (id bytea)";
    sql(&url, effect).await;
    for earlier_first in [true, false] {
        let id = id();
        let (lease, mut transaction) = granted(&store, &id).await;
        let connection: &mut PgConnection = transaction.connection_mut().downcast_mut().unwrap();
        let insert = || sqlx::query("INSERT INTO effects VALUES ($1)").bind(id.as_bytes().to_vec());
        insert().execute(connection).await.unwrap();
        let mut earlier = PgConnection::connect(&url).await.unwrap();
        sqlx::raw_sql("BEGIN").execute(&mut earlier).await.unwrap();
        let claim = request();
        let passed = if earlier_first {
            assert_eq!(claim_as_before(&mut earlier, &id, &claim).await, 1);
            insert().execute(&mut earlier).await.unwrap();
            let completes = tokio::spawn(async move {
                transaction.complete_and_commit(&lease, &DONE).await.unwrap()
            });
            sleep(Duration::from_millis(100)).await;
            sqlx::raw_sql("COMMIT").execute(&mut earlier).await.unwrap();
            completes.await.unwrap()
        } else {
            let completed = transaction.complete(&lease, &DONE).await.unwrap();
            let claims = tokio::spawn(async move {
                let inserted = claim_as_before(&mut earlier, &id, &claim).await;
                assert_eq!(inserted, 0, "both were granted");
            });
            sleep(Duration::from_millis(100)).await;
            transaction.commit().await.unwrap();
            claims.await.unwrap();
            completed
        };
        assert_eq!(passed == Fence::Passed, !earlier_first);
        let effects = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM effects WHERE id = $1");
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let effects = effects.bind(id.as_bytes().to_vec()).fetch_one(&mut connection).await;
        assert_eq!(effects.unwrap(), 1);
    }
}

pub(super) fn connection(transaction: &mut Box<dyn Transaction>) -> &mut PgConnection {
    transaction.connection_mut().downcast_mut().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_that_handlers_have_dropped_from_all_sessions_are_prepared_again() {
    const SESSIONS: u16 = 3;
    let sessions = NonZeroU16::new(SESSIONS).unwrap();
    let (store, _) = store_with(PostgresStore::options().max_transactions(sessions)).await;
    for _ in 0..2 {
        let mut open = Vec::new();
        for _ in 0..SESSIONS {
            let (lease, mut transaction) = granted(&store, &id()).await;
            sqlx::raw_sql("DEALLOCATE ALL").execute(connection(&mut transaction)).await.unwrap();
            open.push((lease, transaction));
        }
        for (lease, transaction) in open {
            let completed = transaction.complete_and_commit(&lease, &DONE).await;
            assert_eq!(completed.unwrap(), Fence::Passed);
        }
    }
}

/// A server with `pg_stat_statements` keeps a limited number of different texts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_transaction_has_statements_that_no_other_transaction_has() {
    const TEXTS: &str = "SELECT count(*) FROM pg_stat_statements AS s JOIN pg_database AS d \
                         ON d.oid = s.dbid WHERE d.datname = current_database()";
    const TRANSACTIONS: i64 = 10;
    let (store, url) = store().await;
    sql(&url, "CREATE EXTENSION pg_stat_statements".to_owned()).await;
    let mut texts = Vec::new();
    for _ in 0..3 {
        for _ in 0..TRANSACTIONS {
            let (lease, mut transaction) = granted(&store, &id()).await;
            transaction.undo().await.unwrap();
            let completed = transaction.complete_and_commit(&lease, &DONE).await;
            assert_eq!(completed.unwrap(), Fence::Passed);
            granted(&store, &id()).await.1.roll_back().await;
            let mut transaction = store.transactions().unwrap().begin().await.unwrap();
            connection(&mut transaction);
            transaction.commit().await.unwrap();
        }
        texts.push(number(&url, TEXTS).await);
    }
    // On a busy machine, a renewal or a probe can be the first with its text.
    assert!(texts[2] < texts[1] + TRANSACTIONS, "{texts:?}");
}

/// Handlers that run for long do not delay replays by as much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_does_not_wait_for_handlers_that_use_all_connections() {
    let (store, _) = store_with(PostgresStore::options().max_transactions(NonZeroU16::MIN)).await;
    let done = id();
    let (lease, transaction) = granted(&store, &done).await;
    transaction.complete_and_commit(&lease, &DONE).await.unwrap();
    let (_, open) = granted(&store, &id()).await;
    assert_eq!(rejected(claim(&store, &done, Duration::ZERO).await), Rejection::Completed(DONE));
    drop(open);
}

/// Fails if a duplicate keeps a connection while it waits for the transaction of another process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_that_wait_for_other_processes_leave_the_connections_to_new_keys() {
    let (store, url) = store().await;
    let one = PostgresStore::options().max_transactions(NonZeroU16::MIN);
    let other = one.connect(&url).await.unwrap();
    let mut open = Vec::new();
    let mut waits = Vec::new();
    for _ in 0..3 {
        let id = id();
        open.push(granted(&store, &id).await);
        let other = other.clone();
        waits.push(tokio::spawn(async move {
            rejected(claim(&other, &id, Duration::from_secs(60)).await)
        }));
    }
    sleep(Duration::from_millis(300)).await;
    for _ in 0..5 {
        let (lease, transaction) = granted(&other, &id()).await;
        let completed = transaction.complete_and_commit(&lease, &DONE).await;
        assert_eq!(completed.unwrap(), Fence::Passed);
    }
    for (lease, transaction) in open {
        assert_eq!(transaction.complete_and_commit(&lease, &DONE).await.unwrap(), Fence::Passed);
    }
    for waited in waits {
        assert_eq!(waited.await.unwrap(), Rejection::Completed(DONE));
    }
}

/// Fails if the claim waits for the table longer than other statements of the store do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_in_a_transaction_waits_briefly_for_a_locked_table() {
    let (store, url) = store().await;
    let plain = PostgresStore::connect(&with(&url, "statement-cache-capacity=0")).await;
    let shared = PostgresStore::from_pool(PgPool::connect(&url).await.unwrap()).await;
    for store in [store, plain.unwrap(), shared.unwrap()] {
        // A session in which the store has prepared its statements, and a new one.
        for warm in [false, true] {
            if warm {
                granted(&store, &id()).await.1.roll_back().await;
            }
            let mut operator = PgConnection::connect(&url).await.unwrap();
            let lock = "BEGIN; LOCK TABLE idempotency_records";
            sqlx::raw_sql(lock).execute(&mut operator).await.unwrap();
            for wait in [Duration::ZERO, Duration::from_millis(100)] {
                let claim = request();
                let id = id();
                let claimed = store.transactions().unwrap();
                let claimed = claimed.claim(&id, &claim, wait);
                let claimed = tokio::time::timeout(Duration::from_secs(4), claimed).await;
                let error = claimed.expect("the claim waits for the table").unwrap_err();
                assert!(error.is_transient(), "{error:?}");
            }
            operator.close().await.unwrap();
            granted(&store, &id()).await.1.roll_back().await;
        }
    }
}

/// The limits of a claim end with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_statements_of_a_handler_have_the_limits_of_its_session() {
    let (_, url) = store().await;
    let limits = "options=-c%20lock_timeout%3D1234%20-c%20statement_timeout%3D56789";
    for more in ["", "&statement-cache-capacity=0"] {
        let url = with(&url, &format!("{limits}{more}"));
        let store = PostgresStore::connect(&url).await.unwrap();
        for _ in 0..2 {
            let (_, mut transaction) = granted(&store, &id()).await;
            let show =
                "SELECT current_setting('lock_timeout') || current_setting('statement_timeout')";
            let shown: String =
                sqlx::query_scalar(show).fetch_one(connection(&mut transaction)).await.unwrap();
            assert_eq!(shown, "1234ms56789ms");
            transaction.roll_back().await;
        }
    }
}
