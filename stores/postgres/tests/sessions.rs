//! Sessions that the application has changed: by a hook of its pool, in a handler, or by leaving a
//! transaction open.

use std::{
    num::NonZeroU16,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;
use idempotent_core::{
    Lease, Store,
    protocol::{Claim, ClaimOutcome, Fence, Rejection, RenewOutcome, Renewal},
    store::{Transaction, TransactionClaim},
};
use idempotent_postgres::{PostgresStore, internals::batched_postgres};
use sqlx::{Connection as _, PgConnection, PgPool, postgres::PgPoolOptions};
use tokio::time::timeout;

use crate::helpers::{database, id, number, request, sql, with};

const DONE: Bytes = Bytes::from_static(b"done");
const GRANTED: ClaimOutcome = ClaimOutcome::Granted { attempt: 1 };
const COUNT: &str = "SELECT count(*) FROM";

/// A database with a table of records in `public` and one in `tenant`.
async fn two_tables() -> String {
    let url = database().await;
    sql(&url, "CREATE SCHEMA tenant").await;
    for schema in ["public", "tenant"] {
        let store = PostgresStore::options().schema(schema).connect(&url).await.unwrap();
        store.migrate().await.unwrap();
    }
    url
}

/// A pool whose hook executes a statement in each new session; the hook gets the number of sessions
/// that came before.
async fn pool(url: &str, size: u32, hook: fn(usize) -> &'static str) -> PgPool {
    let opened = Arc::new(AtomicUsize::new(0));
    let options = PgPoolOptions::new().max_connections(size).after_connect(move |session, _| {
        let text = hook(opened.fetch_add(1, Ordering::Relaxed));
        Box::pin(async move { sqlx::raw_sql(text).execute(session).await.map(drop) })
    });
    options.connect(url).await.unwrap()
}

fn new_claim() -> (Lease, Claim) {
    let claim = request();
    (Lease { id: id(), owner: claim.owner }, claim)
}

async fn begin(store: &PostgresStore, lease: &Lease, claim: &Claim) -> Box<dyn Transaction> {
    let wait = Duration::ZERO;
    match store.transactions().unwrap().claim(&lease.id, claim, wait).await.unwrap() {
        TransactionClaim::Granted { transaction, .. } => transaction,
        TransactionClaim::Rejected(rejection) => panic!("{rejection:?}"),
    }
}

async fn send(transaction: &mut dyn Transaction, text: &'static str) {
    let connection: &mut PgConnection = transaction.connection_mut().downcast_mut().unwrap();
    sqlx::raw_sql(text).execute(connection).await.unwrap();
}

fn message(error: &idempotent_core::StoreError) -> String {
    format!("{error}: {}", std::error::Error::source(error).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_connections_have_the_hook_of_the_applications_pool() {
    let url = two_tables().await;
    let pool = pool(&url, 4, |_| "SET search_path TO tenant").await;
    let alone = PostgresStore::from_pool(pool).await.unwrap();
    for store in [alone.clone(), batched_postgres(alone.clone())] {
        store.check().await.unwrap();
        let (lease, claim) = new_claim();
        let granted = ClaimOutcome::Granted { attempt: 1 };
        assert_eq!(store.claim(&lease.id, &claim).await.unwrap(), granted);
        let renewal = Renewal::new(lease, claim.lease);
        assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed]);
        assert_eq!(store.complete(&lease, &DONE).await.unwrap(), Fence::Passed);
        // Another store of the same pool finds the record.
        let replay = ClaimOutcome::Rejected(Rejection::Completed(DONE));
        assert_eq!(alone.claim(&lease.id, &request()).await.unwrap(), replay);
        let (lease, claim) = new_claim();
        let transaction = begin(&store, &lease, &claim).await;
        let fence = transaction.complete_and_commit(&lease, &DONE).await.unwrap();
        assert_eq!(fence, Fence::Passed);
    }
    let tables = ["tenant", "public"].map(|schema| format!("{COUNT} {schema}.idempotency_records"));
    let [tenant, public] = tables;
    assert_eq!((number(&url, tenant).await, number(&url, public).await), (4, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_names_the_difference_between_connections() {
    let url = two_tables().await;
    let grant = "DO $$ BEGIN CREATE ROLE idempotent_other SUPERUSER; \
                 EXCEPTION WHEN duplicate_object THEN NULL; END $$";
    sql(&url, grant).await;
    // The pool's single connection is opened first, then one for renewals and one for batches.
    let by_schema: fn(usize) -> _ = |before| match before {
        0 => "SET search_path TO tenant",
        _ => "SET search_path TO public",
    };
    let by_role: fn(usize) -> _ = |before| match before {
        0 => "SET ROLE idempotent_other",
        _ => "SELECT 1",
    };
    let of_batches: fn(usize) -> _ = |before| match before {
        2 => "SET search_path TO tenant",
        _ => "SET search_path TO public",
    };
    let plain = with(&url, "statement-cache-capacity=0");
    for (url, hook, words) in [
        (&url, by_schema, ["the schema `public`", "for steps finds it in the schema `tenant`"]),
        (&url, by_role, ["for steps have the role `idempotent_other`", "for renewals `"]),
        (&url, of_batches, ["the schema `public`", "for batches finds it in the schema `tenant`"]),
        // Plain statements are sent on connections of the store.
        (&plain, by_schema, ["`public`", "for transactions finds it in the schema `tenant`"]),
    ] {
        let store = PostgresStore::from_pool(pool(url, 1, hook).await).await.unwrap();
        let error = store.check().await.unwrap_err();
        assert!(!error.is_transient(), "{error}");
        for word in words {
            assert!(message(&error).contains(word), "{}", message(&error));
        }
        // Nevertheless all statements use one table.
        let batched = batched_postgres(store.clone());
        let (lease, claim) = new_claim();
        assert!(matches!(
            store.claim(&lease.id, &claim).await.unwrap(),
            ClaimOutcome::Granted { .. }
        ));
        let duplicate = batched.claim(&lease.id, &request()).await.unwrap();
        assert!(
            matches!(duplicate, ClaimOutcome::Rejected(Rejection::InFlight { .. })),
            "{duplicate:?}"
        );
        let renewal = Renewal::new(lease, claim.lease);
        assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed]);
    }
    let named = PostgresStore::options().schema("tenant");
    let named = named.from_pool(pool(&url, 1, by_schema).await).await.unwrap();
    named.check().await.unwrap();
}

/// The pool's own connections follow its options, which the application can change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_names_connections_that_find_another_table() {
    let (url, other) = (two_tables().await, two_tables().await);
    let pool = PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
    let options = PostgresStore::options().schema("tenant");
    let store = options.from_pool(pool.clone()).await.unwrap();
    store.check().await.unwrap();
    pool.set_connect_options(other.parse().unwrap());
    pool.acquire().await.unwrap().close().await.unwrap();
    let error = store.check().await.unwrap_err();
    let expected = "connections for steps and for renewals find different tables";
    assert!(!error.is_transient() && message(&error).contains(expected), "{}", message(&error));
}

/// A handler may leave its session changed, and may keep its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_is_not_disturbed_by_handlers() {
    let options = PostgresStore::options().max_transactions(NonZeroU16::MIN);
    let store = options.connect(&two_tables().await).await.unwrap();
    let mut transaction = store.transactions().unwrap().begin().await.unwrap();
    send(&mut *transaction, "SET SESSION search_path TO tenant").await;
    transaction.commit().await.unwrap();
    store.check().await.unwrap();
    let transaction = store.transactions().unwrap().begin().await.unwrap();
    store.check().await.unwrap();
    assert!(transaction.roll_back().await);
}

/// The store calls the hook through a pool with the application's options.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_opens_no_more_connections_than_it_uses() {
    let url = two_tables().await;
    let opened = Arc::new(AtomicUsize::new(0));
    let options = PgPoolOptions::new().min_connections(3).max_connections(3).after_connect({
        let opened = opened.clone();
        move |_, _| {
            opened.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Ok(()) })
        }
    });
    let pool = options.connect(&url).await.unwrap();
    let store = PostgresStore::from_pool(pool.clone()).await.unwrap();
    store.check().await.unwrap();
    while pool.size() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(opened.load(Ordering::Relaxed), 5, "three, one for renewals, and one for batches");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handlers_search_path_and_temporary_tables_do_not_move_the_record() {
    let url = two_tables().await;
    let pool = PgPool::connect(&url).await.unwrap();
    let prepared_anew = with(&url, "statement-cache-capacity=0");
    let stores = [
        PostgresStore::connect(&url).await.unwrap(),
        PostgresStore::connect(&prepared_anew).await.unwrap(),
        PostgresStore::from_pool(pool).await.unwrap(),
    ];
    let mut expected = 0;
    for store in stores {
        for text in [
            "SET LOCAL search_path TO tenant",
            "SET SESSION search_path TO tenant",
            "CREATE TEMP TABLE idempotency_records (LIKE public.idempotency_records INCLUDING ALL) \
             ON COMMIT DROP",
        ] {
            let (lease, claim) = new_claim();
            let mut transaction = begin(&store, &lease, &claim).await;
            send(&mut *transaction, text).await;
            let fence = transaction.complete_and_commit(&lease, &DONE).await.unwrap();
            assert_eq!(fence, Fence::Passed, "{text}");
            let replay = ClaimOutcome::Rejected(Rejection::Completed(DONE));
            assert_eq!(store.claim(&lease.id, &request()).await.unwrap(), replay, "{text}");
            let (lease, claim) = new_claim();
            store.claim(&lease.id, &claim).await.unwrap();
            let mut transaction = store.transactions().unwrap().begin().await.unwrap();
            send(&mut *transaction, text).await;
            let fence = transaction.complete_and_commit(&lease, &DONE).await.unwrap();
            assert_eq!(fence, Fence::Passed, "{text}");
            expected += 2;
        }
    }
    let public = format!("{COUNT} public.idempotency_records WHERE state = 2");
    let tenant = format!("{COUNT} tenant.idempotency_records");
    assert_eq!((number(&url, public).await, number(&url, tenant).await), (expected, 0));
}

/// The name of a schema may contain any characters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_is_found_in_a_schema_of_any_name() {
    let url = database().await;
    let schema = r#"it's a "tenant" $x"#;
    let quoted = format!("\"{}\"", schema.replace('"', "\"\""));
    let name = url.rsplit_once('/').unwrap().1.split('?').next().unwrap().to_owned();
    let set = format!("CREATE SCHEMA {quoted}; ALTER DATABASE {name} SET search_path = {quoted}");
    sql(&url, set).await;
    for url in [url.clone(), with(&url, "statement-cache-capacity=0")] {
        let store = PostgresStore::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        let (lease, claim) = new_claim();
        store.claim(&lease.id, &claim).await.unwrap();
        assert_eq!(store.complete(&lease, &DONE).await.unwrap(), Fence::Passed);
        let (lease, claim) = new_claim();
        let transaction = begin(&store, &lease, &claim).await;
        let fence = transaction.complete_and_commit(&lease, &DONE).await.unwrap();
        assert_eq!(fence, Fence::Passed);
    }
    assert_eq!(number(&url, format!("{COUNT} {quoted}.idempotency_records")).await, 4);
}

/// Leaves a transaction open on a connection of a pool, as an early return after a raw `BEGIN`
/// does.
async fn leak(pool: &PgPool, statements: &'static [&'static str]) {
    let mut connection = pool.acquire().await.unwrap();
    for text in statements {
        let _ = sqlx::raw_sql(*text).execute(&mut *connection).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_on_which_the_application_left_a_transaction_open_is_not_used() {
    let url = two_tables().await;
    let pool = PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
    let store = PostgresStore::from_pool(pool.clone()).await.unwrap();
    store.check().await.unwrap();
    let other = PostgresStore::connect(&url).await.unwrap();
    for leaked in [&["BEGIN"][..], &["BEGIN", "SELECT 1 / 0"]] {
        let (lease, claim) = new_claim();
        leak(&pool, leaked).await;
        let granted = ClaimOutcome::Granted { attempt: 1 };
        assert_eq!(store.claim(&lease.id, &claim).await.unwrap(), granted, "{leaked:?}");
        let duplicate = other.claim(&lease.id, &request()).await.unwrap();
        assert!(
            matches!(duplicate, ClaimOutcome::Rejected(Rejection::InFlight { .. })),
            "{leaked:?}: {duplicate:?}"
        );
        leak(&pool, leaked).await;
        assert_eq!(store.complete(&lease, &DONE).await.unwrap(), Fence::Passed, "{leaked:?}");
        let replay = ClaimOutcome::Rejected(Rejection::Completed(DONE));
        assert_eq!(other.claim(&lease.id, &request()).await.unwrap(), replay, "{leaked:?}");
        leak(&pool, leaked).await;
        let (lease, claim) = new_claim();
        let transaction = begin(&store, &lease, &claim).await;
        let fence = transaction.complete_and_commit(&lease, &DONE).await.unwrap();
        assert_eq!(fence, Fence::Passed, "{leaked:?}");
        let replay = ClaimOutcome::Rejected(Rejection::Completed(DONE));
        assert_eq!(other.claim(&lease.id, &request()).await.unwrap(), replay, "{leaked:?}");
    }
    // The pool's next connection serves the application.
    let one: i32 = sqlx::query_scalar("SELECT 1").fetch_one(&pool).await.unwrap();
    assert_eq!(one, 1);
}

/// The hook removes all limits, as an application does that computes long reports.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limits_of_batches_and_renewals_replace_those_of_the_hook() {
    let url = database().await;
    let hook = |_| "SET lock_timeout = 0; SET statement_timeout = 0; SET enable_hashjoin = on";
    let store = PostgresStore::from_pool(pool(&url, 4, hook).await).await.unwrap();
    store.migrate().await.unwrap();
    let store = batched_postgres(store);
    let (lease, claim) = new_claim();
    assert_eq!(store.claim(&lease.id, &claim).await.unwrap(), GRANTED);
    let renewal = [Renewal::new(lease, claim.lease)];
    assert_eq!(store.renew(&renewal).await.unwrap(), [RenewOutcome::Renewed]);
    let mut operator = PgConnection::connect(&url).await.unwrap();
    let lock = "BEGIN; LOCK TABLE idempotency_records IN ACCESS EXCLUSIVE MODE";
    sqlx::raw_sql(lock).execute(&mut operator).await.unwrap();
    let renewed = timeout(Duration::from_secs(5), store.renew(&renewal)).await;
    assert!(renewed.expect("the renewal waits for the table").unwrap_err().is_transient());
    let batch = store.clone();
    let claimed = tokio::spawn(async move { batch.claim(&id(), &request()).await });
    // A batch without the store's limits waits for 3 s.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND wait_event_type = 'Lock' AND query LIKE '%LATERAL%'";
    assert_eq!(number(&url, waiting).await, 0, "the batch waits for the table");
    operator.close().await.unwrap();
    assert_eq!(claimed.await.unwrap().unwrap(), GRANTED);
}

/// Each connection of the pool may have one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_fails_although_all_connections_have_an_open_transaction() {
    let url = two_tables().await;
    let pool = PgPoolOptions::new().max_connections(3).connect(&url).await.unwrap();
    let store = PostgresStore::from_pool(pool.clone()).await.unwrap();
    store.check().await.unwrap();
    let leak_all = async |statements: &'static [&'static str]| {
        let connections = join_all((0..3).map(|_| pool.acquire())).await;
        for connection in connections {
            let mut connection = connection.unwrap();
            for text in statements {
                let _ = sqlx::raw_sql(*text).execute(&mut *connection).await;
            }
        }
    };
    for leaked in [&["BEGIN"][..], &["BEGIN", "SELECT 1 / 0"]] {
        let (lease, claim) = new_claim();
        leak_all(leaked).await;
        let granted = ClaimOutcome::Granted { attempt: 1 };
        assert_eq!(store.claim(&lease.id, &claim).await.unwrap(), granted, "{leaked:?}");
        leak_all(leaked).await;
        assert_eq!(store.release(&lease).await.unwrap(), Fence::Passed, "{leaked:?}");
        leak_all(leaked).await;
        let transaction = begin(&store, &lease, &claim).await;
        assert!(transaction.roll_back().await, "{leaked:?}");
    }
}

/// The store resets only sessions of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_settings_of_an_applications_session_stay() {
    let url = two_tables().await;
    let pool = pool(&url, 1, |_| "SET search_path TO tenant").await;
    let store = PostgresStore::from_pool(pool.clone()).await.unwrap();
    for _ in 0..2 {
        let (lease, claim) = new_claim();
        let transaction = begin(&store, &lease, &claim).await;
        let fence = transaction.complete_and_commit(&lease, &DONE).await.unwrap();
        assert_eq!(fence, Fence::Passed);
        let path: String = sqlx::query_scalar("SHOW search_path").fetch_one(&pool).await.unwrap();
        assert_eq!(path, "tenant");
    }
}

/// The driver still counts the statement of the completion as prepared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_whose_statements_a_handler_has_dropped_is_not_used_again() {
    let options = PostgresStore::options().max_transactions(NonZeroU16::MIN);
    let store = options.connect(&two_tables().await).await.unwrap();
    for dropped in [false, true, false] {
        let (lease, claim) = new_claim();
        store.claim(&lease.id, &claim).await.unwrap();
        let mut transaction = store.transactions().unwrap().begin().await.unwrap();
        if dropped {
            send(&mut *transaction, "DEALLOCATE ALL").await;
            assert!(transaction.complete(&lease, &DONE).await.is_err());
            transaction.roll_back().await;
        } else {
            let completed = transaction.complete_and_commit(&lease, &DONE).await;
            assert_eq!(completed.unwrap(), Fence::Passed);
        }
    }
}
