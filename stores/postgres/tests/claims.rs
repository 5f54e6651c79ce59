//! What the store's statements do on the server: locks, writes, and the number of statements.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use idempotent_core::{
    Lease, Store,
    protocol::{ClaimOutcome, Fence, Rejection, RenewOutcome, Renewal},
    store::TransactionClaim,
};
use idempotent_postgres::PostgresStore;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, postgres::PgPoolOptions};
use tokio::{task::JoinSet, time::timeout};

use crate::helpers::{id, number, request, sql, store};

/// Claims a new key and completes it.
async fn claim_and_complete(store: &PostgresStore, size: usize) -> Lease {
    let (id, claim) = (id(), request());
    assert_eq!(store.claim(&id, &claim).await.unwrap(), ClaimOutcome::Granted { attempt: 1 });
    let lease = Lease { id, owner: claim.owner };
    assert_eq!(store.complete(&lease, &Bytes::from(vec![7; size])).await.unwrap(), Fence::Passed);
    lease
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_one_of_64_concurrent_claims_is_granted() {
    let (store, _) = store().await;
    for _ in 0..50 {
        race(&store, 64).await;
    }
}

/// Claims one new key this many times concurrently.
pub(super) async fn race(store: &PostgresStore, many: usize) {
    let id = id();
    let claims = (0..many).map(|_| {
        let store = store.clone();
        async move { store.claim(&id, &request()).await.unwrap() }
    });
    let outcomes = claims.collect::<JoinSet<_>>().join_all().await;
    let granted =
        outcomes.iter().filter(|outcome| **outcome == ClaimOutcome::Granted { attempt: 1 }).count();
    let in_flight = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, ClaimOutcome::Rejected(Rejection::InFlight { .. })))
        .count();
    assert_eq!((granted, in_flight), (1, many - 1));
}

#[tokio::test]
async fn a_replay_waits_for_no_row_lock() {
    let (store, url) = store().await;
    let lease = claim_and_complete(&store, 10).await;
    let mut other = PgConnection::connect(&url).await.unwrap();
    let mut hold_lock = other.begin().await.unwrap();
    sqlx::raw_sql("SELECT * FROM idempotency_records FOR UPDATE")
        .execute(&mut *hold_lock)
        .await
        .unwrap();
    let claim = request();
    let replay = store.claim(&lease.id, &claim).await.unwrap();
    assert!(matches!(replay, ClaimOutcome::Rejected(Rejection::Completed(_))), "{replay:?}");
    // A completion needs the lock, and waits.
    assert!(
        timeout(Duration::from_millis(300), store.complete(&lease, &Bytes::new())).await.is_err()
    );
    hold_lock.rollback().await.unwrap();
}

#[tokio::test]
async fn a_replay_writes_nothing() {
    let (store, url) = store().await;
    let lease = claim_and_complete(&store, 10).await;
    let before =
        "SELECT xmin::text || '/' || xmax::text || '/' || ctid::text FROM idempotency_records";
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let seen: String = sqlx::query_scalar(before).fetch_one(&mut connection).await.unwrap();
    for _ in 0..20 {
        store.claim(&lease.id, &request()).await.unwrap();
    }
    assert_eq!(
        sqlx::query_scalar::<_, String>(before).fetch_one(&mut connection).await.unwrap(),
        seen
    );
}

#[tokio::test]
async fn a_new_key_and_a_replay_are_one_statement_each() {
    let (store, url) = store().await;
    sql(&url, "CREATE EXTENSION pg_stat_statements").await;
    let calls = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements AS s JOIN \
        pg_database AS d ON d.oid = s.dbid \
                 WHERE d.datname = current_database() AND query NOT LIKE '%pg_stat_statements%'";
    let count = async || {
        let before = number(&url, calls).await;
        let lease = claim_and_complete(&store, 10).await;
        let first = number(&url, calls).await;
        store.claim(&lease.id, &request()).await.unwrap();
        [first - before, number(&url, calls).await - first]
    };
    let mut counts = count().await;
    // On a busy machine a batch can be late; its step is then executed alone.
    for _ in 0..9 {
        if counts != [2, 1] {
            counts = count().await;
        }
    }
    assert_eq!(counts, [2, 1], "the statements of a claim and a completion, and of a replay");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completions_and_renewals_write_no_index() {
    let (store, url) = store().await;
    const KEYS: i64 = 400;
    let work = (0..8).map(|_| {
        let store = store.clone();
        async move {
            for _ in 0..KEYS / 8 {
                claim_and_complete(&store, 1024).await;
            }
        }
    });
    work.collect::<JoinSet<_>>().join_all().await;
    let (id, claim) = (id(), request());
    store.claim(&id, &claim).await.unwrap();
    let renewal = Renewal::new(Lease { id, owner: claim.owner }, claim.lease);
    for _ in 0..100 {
        assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed]);
    }
    // A session reports its statistics at the latest when it ends.
    drop(store);
    let count = |column| {
        format!("SELECT {column} FROM pg_stat_user_tables WHERE relname = 'idempotency_records'")
    };
    for _ in 0..100 {
        if number(&url, count("n_tup_upd")).await == KEYS + 100 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (updates, hot) =
        (number(&url, count("n_tup_upd")).await, number(&url, count("n_tup_hot_upd")).await);
    println!("{hot} of {updates} updates were HOT");
    assert_eq!(updates, KEYS + 100);
    assert!(hot * 100 >= updates * 95, "{hot} of {updates}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_concurrent_purges_remove_each_expired_record_once_and_no_live_one() {
    let (store, url) = store().await;
    const EXPIRED: i64 = 4_000;
    // Expired records, and one record of each kind that stays: in flight, completed, held, and in
    // flight past its TTL.
    let insert = |ids: &str, state: u8, abandoned: u8, lease: &str, expires: &str| {
        let recording = if state == 2 { "'a'::bytea" } else { "NULL" };
        format!(
            "INSERT INTO idempotency_records SELECT sha256(n::text::bytea), decode(repeat('01', \
             36), 'hex'), \
             decode(repeat('01', 16), 'hex'), 1, {lease}, {lease}, 0, {expires}, \
             {state}, {abandoned}, \
             {recording} FROM {ids} AS n;"
        )
    };
    let far = "99999999999999";
    let kept = [
        insert("generate_series(-1, -1)", 1, 0, far, far),
        insert("generate_series(-2, -2)", 2, 0, "0", far),
        insert("generate_series(-3, -3)", 3, 0, "0", "1"),
        insert("generate_series(-4, -4)", 1, 0, far, "1"),
        insert("generate_series(-5, -5)", 1, 1, "0", "1"),
    ];
    sql(&url, kept.concat() + &insert(&format!("generate_series(1, {EXPIRED})"), 2, 0, "0", "1"))
        .await;
    let purgers = (0..4).map(|_| {
        let store = store.clone();
        async move {
            let mut removed = Vec::new();
            loop {
                match store.purge(100).await.unwrap() {
                    0 => return removed,
                    more => removed.push(i64::try_from(more).unwrap()),
                }
            }
        }
    });
    let removed = purgers.collect::<JoinSet<_>>().join_all().await;
    assert_eq!(removed.iter().flatten().sum::<i64>(), EXPIRED);
    assert!(
        removed.iter().filter(|batches| batches.len() > 1).count() > 1,
        "only one purge removed records: {removed:?}"
    );
    assert!(removed.iter().flatten().all(|batch| *batch <= 100), "{removed:?}");
    assert_eq!(number(&url, "SELECT count(*) FROM idempotency_records").await, 5);
}

#[tokio::test]
async fn a_purge_finds_expired_records_with_the_index() {
    let (_store, url) = store().await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let purge = include_str!("../src/sql/purge.sql");
    let purge = purge
        .replace("{schema}", "")
        .replace("{table}", "idempotency_records")
        .replace("$1", "1000");
    let purge = purge.replace("{now}", "(extract(epoch FROM clock_timestamp()) * 1000)::bigint");
    let explain = format!("SET enable_seqscan = off; EXPLAIN {purge}");
    let rows = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&mut connection).await.unwrap();
    let plan: BTreeSet<String> = rows.iter().map(|row| sqlx::Row::get(row, 0)).collect();
    let condition = plan.iter().any(|line| line.contains("Index Cond: (expires_at <= "));
    assert!(condition, "{plan:#?}");
}

#[tokio::test]
async fn leases_are_renewed_while_claims_hold_every_other_connection() {
    let (store, url) = store().await;
    let (id, claim) = (id(), request());
    store.claim(&id, &claim).await.unwrap();
    // More claims than connections, all of which wait for another session's open transaction.
    let mut other = PgConnection::connect(&url).await.unwrap();
    let mut open = other.begin().await.unwrap();
    let locked_ids: Vec<_> = (0..20).map(|_| crate::helpers::id()).collect();
    for id in &locked_ids {
        let row = "INSERT INTO idempotency_records SELECT $1, fingerprint, owner, 1, 0, 0, 0, 0, \
            1, 0 FROM idempotency_records LIMIT 1";
        sqlx::query(row).bind(id.as_bytes().as_slice()).execute(&mut *open).await.unwrap();
    }
    let done = Arc::new(AtomicBool::new(false));
    let ended = Arc::new(AtomicUsize::new(0));
    let mut waiting = JoinSet::new();
    for id in locked_ids {
        let (store, done, ended) = (store.clone(), done.clone(), ended.clone());
        waiting.spawn(async move {
            let mut in_flight = 0;
            while !done.load(Ordering::Relaxed) {
                let outcome = store.claim(&id, &request()).await;
                ended.fetch_add(1, Ordering::Relaxed);
                in_flight += u32::from(matches!(
                    outcome,
                    Ok(ClaimOutcome::Rejected(Rejection::InFlight { .. }))
                ));
            }
            in_flight
        });
    }
    let renewal = Renewal::new(Lease { id, owner: claim.owner }, claim.lease);
    let mut meanwhile = Vec::new();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let before = ended.load(Ordering::Relaxed);
        assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed]);
        meanwhile.push(ended.load(Ordering::Relaxed) - before);
    }
    // A renewal that had to queue for a connection would wait for the end of about ten claims.
    assert!(
        meanwhile.iter().any(|ended| *ended < 5),
        "claims that ended during each renewal: {meanwhile:?}"
    );
    done.store(true, Ordering::Relaxed);
    let in_flight = waiting.join_all().await;
    assert!(
        in_flight.iter().filter(|claims| **claims > 0).count() > 10,
        "the claims did not wait: {in_flight:?}"
    );
    open.rollback().await.unwrap();
}

/// The `lock_timeout` that a handler finds after a claim in its transaction.
async fn lock_timeout(store: &PostgresStore) -> String {
    let claimed = store
        .transactions()
        .unwrap()
        .claim(&id(), &request(), Duration::from_millis(80))
        .await
        .unwrap();
    let TransactionClaim::Granted { mut transaction, .. } = claimed else {
        panic!("the claim was rejected")
    };
    let connection: &mut PgConnection = transaction.connection_mut().downcast_mut().unwrap();
    let set = sqlx::query_scalar("SELECT current_setting('lock_timeout')")
        .fetch_one(connection)
        .await
        .unwrap();
    transaction.roll_back().await;
    set
}

#[tokio::test]
async fn a_claim_in_a_transaction_leaves_the_handlers_lock_timeout_alone() {
    let (_, url) = store().await;
    let name = url.rsplit_once('/').unwrap().1.split('?').next().unwrap();
    sql(&url, format!("ALTER DATABASE {name} SET lock_timeout = '7654ms'")).await;
    assert_eq!(lock_timeout(&PostgresStore::connect(&url).await.unwrap()).await, "7654ms");
    // An application may have changed the setting on its own connections.
    let pool = PgPoolOptions::new().after_connect(|connection, _| {
        Box::pin(async move { connection.execute("SET lock_timeout = '4321ms'").await.map(drop) })
    });
    let shared = PostgresStore::from_pool(pool.connect(&url).await.unwrap()).await.unwrap();
    assert_eq!(lock_timeout(&shared).await, "4321ms");
}

#[tokio::test]
async fn a_replay_does_not_wait_while_handlers_use_all_transactions() {
    let (store, _) = store().await;
    let (id, claim, again) = (id(), request(), request());
    let transactions = store.transactions().unwrap();
    let TransactionClaim::Granted { transaction, .. } =
        transactions.claim(&id, &claim, Duration::from_millis(80)).await.unwrap()
    else {
        panic!("the claim was rejected")
    };
    let lease = Lease { id, owner: claim.owner };
    let response = Bytes::from_static(b"done");
    assert_eq!(transaction.complete_and_commit(&lease, &response).await.unwrap(), Fence::Passed);
    let mut handlers = Vec::new();
    for _ in 0..10 {
        handlers.push(transactions.begin().await.unwrap());
    }
    let replay = transactions.claim(&id, &again, Duration::from_millis(80));
    // A call that waits for a connection gives up after 5 seconds, with an error.
    let outcome = replay.await.unwrap();
    let TransactionClaim::Rejected(Rejection::Completed(recorded)) = outcome else {
        panic!("the key is not completed")
    };
    assert_eq!(recorded, response);
}

#[tokio::test]
async fn dropped_calls_leak_no_connections() {
    let (store, url) = store().await;
    let lease = claim_and_complete(&store, 10).await;
    let mut other = PgConnection::connect(&url).await.unwrap();
    let mut locked = other.begin().await.unwrap();
    locked.execute("LOCK TABLE idempotency_records IN ACCESS EXCLUSIVE MODE").await.unwrap();
    // More calls than connections. When a call is dropped, it waits for the server or for a
    // connection.
    for _ in 0..24 {
        assert!(
            timeout(Duration::from_millis(30), store.claim(&lease.id, &request())).await.is_err()
        );
        let claim = (id(), request());
        let in_transaction =
            store.transactions().unwrap().claim(&claim.0, &claim.1, Duration::from_secs(5));
        assert!(timeout(Duration::from_millis(30), in_transaction).await.is_err());
    }
    locked.rollback().await.unwrap();
    // A call that waits for a connection gives up after 5 seconds, with an error.
    race(&store, 32).await;
    lock_timeout(&store).await;
}
