//! The conformance suite.

use std::time::Duration;

use idempotent_core::conformance;
use idempotent_postgres::PostgresStore;
use sqlx::{PgPool, postgres::PgPoolOptions};
use test_support::{
    servers::{pgbouncer, pgbouncer::PgBouncer, postgres::Postgres},
    subjects::postgres::ShiftedPostgres,
};
use tokio::sync::Semaphore;

use crate::{
    claims,
    helpers::{database, number, sql, with},
};

/// How many suites run at once. Each case creates a table, one after the other, and has sessions
/// whose plans are all new: more suites side by side only make each other's calls late.
static SUITES: Semaphore = Semaphore::const_new(2);

/// Runs the conformance suite on clones of a store, each with a separate table.
pub(crate) async fn check(store: PostgresStore, url: &str) {
    let _place = SUITES.acquire().await.unwrap();
    let pool = PgPool::connect(url).await.unwrap();
    let subject = || async { ShiftedPostgres::with_new_table(&store, &pool, None) };
    conformance::check(subject).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms() {
    let url = database().await;
    check(PostgresStore::connect(&url).await.unwrap(), &url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_with_simple_queries() {
    let url = database().await;
    let store = PostgresStore::connect(&with(&url, "statement-cache-capacity=0")).await.unwrap();
    assert!(format!("{store:?}").contains("Plain"), "{store:?}");
    check(store, &url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_on_connections_of_the_application() {
    let url = database().await;
    let pool = PgPoolOptions::new().max_connections(20).connect(&url).await.unwrap();
    check(PostgresStore::from_pool(pool).await.unwrap(), &url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_in_partitions_of_another_schema() {
    let url = database().await;
    let options = PostgresStore::options().schema("else_where").partitions(4);
    let store = options.connect(&url).await.unwrap();
    let pool = PgPool::connect(&url).await.unwrap();
    let _place = SUITES.acquire().await.unwrap();
    let subject = || async { ShiftedPostgres::with_new_table(&store, &pool, Some("else_where")) };
    conformance::check(subject).await;
    assert!(
        number(
            &url,
            "SELECT count(*) FROM pg_class WHERE relkind = 'p' AND relname ~ '^t[0-9a-f]{16}$'"
        )
        .await
            >= 40
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_with_repeatable_read_isolation() {
    conforms_under("repeatable read").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_with_serializable_isolation() {
    conforms_under("serializable").await;
}

const ROLLED_BACK: &str =
    "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()";

async fn conforms_under(isolation: &str) {
    let url = database().await;
    let name = url.rsplit_once('/').unwrap().1.split('?').next().unwrap();
    sql(&url, format!("ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'"))
        .await;
    let set =
        format!("SELECT (current_setting('transaction_isolation') = '{isolation}')::int::bigint");
    assert_eq!(number(&url, set).await, 1);
    check(PostgresStore::connect(&url).await.unwrap(), &url).await;
    one_wins_with_prepared_statements(&url).await;
}

/// Prepared statements run with the session's isolation level, so they can fail to serialize. The
/// store must retry them.
async fn one_wins_with_prepared_statements(url: &str) {
    let store = PostgresStore::connect(&with(url, "statement-cache-capacity=64")).await.unwrap();
    assert!(format!("{store:?}").contains("Prepared"), "{store:?}");
    store.migrate().await.unwrap();
    let before = number(url, ROLLED_BACK).await;
    // On a busy machine few claims run at the same time.
    for _ in 0..10 {
        for _ in 0..20 {
            claims::race(&store, 16).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        if number(url, ROLLED_BACK).await > before {
            return;
        }
    }
    panic!("nothing failed to serialize");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_behind_a_pooler() {
    let server = Postgres::start();
    let pooler = PgBouncer::in_front_of(server.port);
    let store = PostgresStore::connect(&pooler.url("postgres")).await.unwrap();
    assert!(format!("{store:?}").contains("Plain"), "{store:?}");
    check(store, &server.url("postgres")).await;
    // The store has used the pooler, and shared its sessions.
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'idempotency'";
    assert!((1..=pgbouncer::SESSIONS).contains(&number(&server.url("postgres"), sessions).await));
}
