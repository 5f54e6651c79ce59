//! A server that stops responding without closing its connections.

use std::time::{Duration, Instant};

use bytes::Bytes;
use idempotent_core::{
    Lease, Store, StoreError,
    protocol::{ClaimOutcome, Fence, Rejection},
};
use idempotent_postgres::PostgresStore;
use sqlx::{
    Connection as _, PgConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::helpers::{id, request, sql, store};
use test_support::{
    proxy::Proxy,
    servers::{
        pgbouncer::{PgBouncer, SESSIONS},
        postgres::Postgres,
    },
    timing::one_of_five_within,
};

/// How long a request may wait for a server that does not respond: half a second, one second for
/// the probe, and tolerance for a busy machine.
const LONGEST: Duration = Duration::from_secs(6);
/// How long the store may take to work again: the longest time limit of a probe, the pause before
/// the next one, and tolerance for a busy machine.
const RECOVERY: Duration = Duration::from_secs(12);

/// Claims this many keys concurrently; returns how long the slowest claim took, and the errors.
async fn claims(store: &PostgresStore, many: usize) -> (Duration, Vec<StoreError>) {
    let claims = (0..many).map(|_| {
        let store = store.clone();
        async move {
            let started = Instant::now();
            (store.claim(&id(), &request()).await, started.elapsed())
        }
    });
    let outcomes = claims.collect::<JoinSet<_>>().join_all().await;
    let slowest = outcomes.iter().map(|(_, took)| *took).max().unwrap();
    (slowest, outcomes.into_iter().filter_map(|(outcome, _)| outcome.err()).collect())
}

/// Asserts that, while the server is silent, the first requests wait for a probe and all others
/// fail at once.
async fn assert_down(store: &PostgresStore) {
    let (slowest, errors) = claims(store, 20).await;
    println!("the slowest of twenty requests waited for {slowest:?}");
    assert_eq!(errors.len(), 20);
    assert!(errors.iter().all(StoreError::is_transient), "{errors:?}");
    assert!(slowest < LONGEST, "{slowest:?}");
    one_of_five_within(Duration::from_millis(500), async || {
        let mut after = Duration::ZERO;
        for _ in 0..30 {
            let (slowest, errors) = claims(store, 1).await;
            assert_eq!(errors.len(), 1);
            after = after.max(slowest);
            sleep(Duration::from_millis(50)).await;
        }
        println!("the slowest of thirty more waited for {after:?}");
        after
    })
    .await;
}

async fn assert_recovers(store: &PostgresStore) {
    let started = Instant::now();
    loop {
        let (_, errors) = claims(store, 1).await;
        if errors.is_empty() {
            break;
        }
        assert!(started.elapsed() < RECOVERY, "{errors:?}");
        sleep(Duration::from_millis(20)).await;
    }
    println!("the store worked again after {:?}", started.elapsed());
    let (slowest, errors) = claims(store, 20).await;
    assert!(errors.is_empty() && slowest < LONGEST, "{slowest:?} {errors:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_responding_delays_a_request_by_one_probe_at_most() {
    let server = Postgres::start();
    let store = PostgresStore::connect(&server.url("postgres")).await.unwrap();
    store.migrate().await.unwrap();
    assert!(claims(&store, 20).await.1.is_empty());
    let transaction = store.transactions().unwrap().begin().await.unwrap();
    for _ in 0..2 {
        server.pause();
        assert_down(&store).await;
        server.resume();
        assert_recovers(&store).await;
    }
    // A handler that already had its transaction can still commit it.
    let (id, claim) = (id(), request());
    store.claim(&id, &claim).await.unwrap();
    let completed =
        transaction.complete_and_commit(&Lease { id, owner: claim.owner }, &Bytes::new()).await;
    assert_eq!(completed.unwrap(), Fence::Passed);
}

async fn behind_proxy(url: &str) -> (PostgresStore, Proxy) {
    let options: PgConnectOptions = url.parse().unwrap();
    let proxy = Proxy::in_front_of(options.get_host(), options.get_port()).await;
    let address = format!("{}:{}", options.get_host(), options.get_port());
    let store =
        PostgresStore::connect(&url.replace(&address, &format!("127.0.0.1:{}", proxy.port)))
            .await
            .unwrap();
    assert!(claims(&store, 20).await.1.is_empty());
    (store, proxy)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_connection_is_detected_by_one_probe() {
    let (_, url) = store().await;
    let (store, proxy) = behind_proxy(&url).await;
    proxy.silence_all();
    assert_down(&store).await;
    proxy.restore();
    assert_recovers(&store).await;
}

/// sqlx's pool keeps dead connections, and waits for each of them before it returns one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_of_the_application_are_detected() {
    let (_, url) = store().await;
    let options: PgConnectOptions = url.parse().unwrap();
    let proxy = Proxy::in_front_of(options.get_host(), options.get_port()).await;
    let options = options.host("127.0.0.1").port(proxy.port);
    let pool = PgPoolOptions::new().max_connections(4).connect_with(options).await.unwrap();
    let store = PostgresStore::from_pool(pool.clone()).await.unwrap();
    assert!(claims(&store, 20).await.1.is_empty());
    // sqlx pings a connection that is returned to the pool, without a time limit.
    while pool.num_idle() < usize::try_from(pool.size()).unwrap() {
        sleep(Duration::from_millis(5)).await;
    }
    proxy.silence_all();
    assert_down(&store).await;
    proxy.restore();
    let started = Instant::now();
    // This takes up to one second for each dead connection.
    let (slowest, errors) = loop {
        let (slowest, errors) = claims(&store, 4).await;
        if errors.is_empty() {
            break (slowest, errors);
        }
        assert!(errors.iter().all(StoreError::is_transient), "{errors:?}");
        assert!(started.elapsed() < Duration::from_secs(120), "{errors:?}");
        sleep(Duration::from_millis(20)).await;
    };
    println!("the first successful request waited for {slowest:?}");
    assert!(errors.is_empty() && slowest < Duration::from_secs(10), "{slowest:?}");
    let (slowest, errors) = claims(&store, 20).await;
    assert!(errors.is_empty() && slowest < LONGEST, "{slowest:?} {errors:?}");
}

/// A router has forgotten the open connections; new ones work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_that_a_router_forgot_are_all_detected_by_one_ping() {
    let (_, url) = store().await;
    let (store, proxy) = behind_proxy(&url).await;
    one_of_five_within(Duration::from_secs(1), async || {
        sleep(Duration::from_millis(1_200)).await;
        proxy.silence();
        let (slowest, errors) = claims(&store, 1).await;
        println!("the first request waited for {slowest:?}");
        assert!(errors.is_empty() && slowest < LONGEST, "{slowest:?} {errors:?}");
        let (slowest, errors) = claims(&store, 10).await;
        println!("the next ten for {slowest:?}");
        assert!(errors.is_empty(), "{errors:?}");
        slowest
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_server_is_not_considered_down() {
    let (store, url) = store().await;
    let slow =
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(3); \
         RETURN NEW; END';
                CREATE TRIGGER slow BEFORE INSERT ON idempotency_records \
                 FOR EACH ROW EXECUTE FUNCTION slow()";
    let (id, claim) = (id(), request());
    store.claim(&id, &claim).await.unwrap();
    sql(&url, slow).await;
    let slow = tokio::spawn({
        let store = store.clone();
        async move { claims(&store, 3).await }
    });
    for _ in 0..20 {
        sleep(Duration::from_millis(100)).await;
        // Meanwhile the server is not considered down.
        assert!(matches!(
            store.claim(&id, &request()).await.unwrap(),
            ClaimOutcome::Rejected(Rejection::InFlight { .. })
        ));
    }
    let (slowest, errors) = slow.await.unwrap();
    assert!(errors.is_empty() && slowest >= Duration::from_secs(3), "{slowest:?} {errors:?}");
}

/// A new connection and a statement take longer than the time limit of the first probe.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_distant_server_is_not_considered_down() {
    let (_, url) = store().await;
    let options: PgConnectOptions = url.parse().unwrap();
    let proxy = Proxy::in_front_of(options.get_host(), options.get_port()).await;
    let address = format!("{}:{}", options.get_host(), options.get_port());
    let url = url.replace(&address, &format!("127.0.0.1:{}", proxy.port));
    let store = PostgresStore::connect(&url).await.unwrap();
    proxy.delay(Duration::from_millis(450));
    let started = Instant::now();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    connection.ping().await.unwrap();
    assert!(started.elapsed() > Duration::from_millis(1_700), "{:?}", started.elapsed());
    let first = async {
        while !claims(&store, 1).await.1.is_empty() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(60), first).await.unwrap();
    // The server is not considered down.
    for _ in 0..4 {
        let (_, errors) = claims(&store, 2).await;
        assert!(errors.is_empty(), "{errors:?}");
    }
}

/// A pooler accepts the probe's connection, and queues its statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_for_a_pooler_whose_sessions_are_all_in_use() {
    let server = Postgres::start();
    let pooler = PgBouncer::in_front_of(server.port);
    let store = PostgresStore::connect(&pooler.url("postgres")).await.unwrap();
    store.migrate().await.unwrap();
    let mut handlers = Vec::new();
    for _ in 0..SESSIONS {
        let (id, claim) = (id(), request());
        store.claim(&id, &claim).await.unwrap();
        handlers.push(Lease { id, owner: claim.owner });
    }
    let mut transactions = Vec::new();
    for _ in 0..SESSIONS {
        transactions.push(store.transactions().unwrap().begin().await.unwrap());
    }
    let another = tokio::spawn({
        let store = store.clone();
        async move { claims(&store, 1).await }
    });
    // Longer than a call and a probe wait for a server that does not respond.
    sleep(Duration::from_secs(3)).await;
    assert!(!another.is_finished());
    for (transaction, lease) in transactions.into_iter().zip(handlers) {
        assert_eq!(
            transaction.complete_and_commit(&lease, &Bytes::new()).await.unwrap(),
            Fence::Passed
        );
    }
    let (waited, errors) = another.await.unwrap();
    assert!(errors.is_empty() && waited > Duration::from_secs(2), "{waited:?} {errors:?}");
}

/// PgBouncer reports its own state with a fatal error that has the code of a protocol violation.
/// Fails if that is taken for a misconfiguration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_disconnects_a_client_is_a_transient_failure() {
    let server = Postgres::start();
    let pooler = PgBouncer::with_wait_timeout(server.port);
    let store = PostgresStore::connect(&pooler.url("postgres")).await.unwrap();
    store.migrate().await.unwrap();
    let mut transactions = Vec::new();
    for _ in 0..SESSIONS {
        transactions.push(store.transactions().unwrap().begin().await.unwrap());
    }
    for error in
        [store.look_up(&id()).await.unwrap_err(), store.claim(&id(), &request()).await.unwrap_err()]
    {
        assert!(error.is_transient(), "{error:?}");
    }
    for transaction in transactions {
        transaction.roll_back().await;
    }
    store.claim(&id(), &request()).await.unwrap();
}

/// Several tasks of the application queue for the only connection of the pool.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_gets_its_turn_in_a_busy_pool() {
    let (_, url) = store().await;
    let options = PgPoolOptions::new().max_connections(1).acquire_timeout(Duration::from_secs(30));
    let pool = options.connect(&url).await.unwrap();
    let store = PostgresStore::from_pool(pool.clone()).await.unwrap();
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let pool = pool.clone();
        callers.spawn(async move {
            loop {
                let mut connection = pool.acquire().await.unwrap();
                sqlx::raw_sql("SELECT pg_sleep(0.3)").execute(&mut *connection).await.unwrap();
            }
        });
    }
    sleep(Duration::from_millis(500)).await;
    let started = Instant::now();
    let claimed =
        store.transactions().unwrap().claim(&id(), &request(), Duration::from_secs(1)).await;
    let waited = started.elapsed();
    callers.abort_all();
    assert!(
        claimed.is_ok() && waited > Duration::from_secs(1),
        "{waited:?} {:?}",
        claimed.map(drop)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_from_the_server_are_not_considered_an_outage() {
    let (store, url) = store().await;
    sql(&url, "ALTER TABLE idempotency_records RENAME TO gone").await;
    for _ in 0..20 {
        assert!(!store.claim(&id(), &request()).await.unwrap_err().is_transient());
    }
    sql(&url, "ALTER TABLE gone RENAME TO idempotency_records").await;
    assert!(claims(&store, 20).await.1.is_empty());
}
