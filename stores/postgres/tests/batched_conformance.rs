//! Claims and completions that are executed in batches.

use idempotent_postgres::{PostgresStore, internals::batched_postgres};
use sqlx::postgres::PgPoolOptions;
use test_support::servers::{pgbouncer::PgBouncer, postgres::Postgres};

use crate::{
    conformance::check,
    helpers::{database, with},
    state_machine::assert_follows,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_in_batches() {
    let url = database().await;
    check(batched_postgres(PostgresStore::connect(&url).await.unwrap()), &url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_in_batches_on_connections_of_the_application() {
    let url = database().await;
    let pool = PgPoolOptions::new().max_connections(20).connect(&url).await.unwrap();
    check(batched_postgres(PostgresStore::from_pool(pool).await.unwrap()), &url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_in_batches_with_serializable_isolation() {
    let url = with(&database().await, "options=-cdefault_transaction_isolation%3Dserializable");
    let prepared = with(&url, "statement-cache-capacity=64");
    for url in [url, prepared] {
        check(batched_postgres(PostgresStore::connect(&url).await.unwrap()), &url).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_follows_the_state_machine_in_batches() {
    let url = database().await;
    let store = PostgresStore::options().partitions(4).connect(&url).await.unwrap();
    assert_follows(batched_postgres(store), &url, 200..212).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_in_batches_behind_a_pooler() {
    let server = Postgres::start();
    let pooler = PgBouncer::in_front_of(server.port);
    let store = PostgresStore::connect(&pooler.url("postgres")).await.unwrap();
    check(batched_postgres(store), &server.url("postgres")).await;
}
