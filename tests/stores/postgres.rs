//! The Postgres store, on real servers.
//!
//! The tests start private servers. `DATABASE_URL` names another server for the tests that do not
//! stop theirs: it needs `pg_stat_statements` in `shared_preload_libraries`, and a user that may
//! create databases.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use idempotent_core::{
    Fingerprint, OwnerToken, RecordId, Store,
    conformance::{self, TestedStore},
    protocol::Claim,
};
use idempotent_postgres::{PostgresOptions, PostgresStore, internals::postgres_with_table};
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool, postgres::PgPoolOptions};
use test_support::servers::{
    pgbouncer,
    pgbouncer::PgBouncer,
    postgres::{Postgres, shared},
};

mod batches;
mod claims;
mod commits;
mod contention;
mod cuts;
mod hostile;
mod in_doubt;
mod late_batches;
mod leftovers;
mod logs;
mod migrations;
mod opening;
mod outages;
mod plans;
mod privileges;
mod roles;
mod runtimes;
mod sessions;
mod silence;
mod snapshots;
mod sqlstates;
mod state_machine;
mod time_limits;
mod transaction_claims;
mod triggers;

/// A number that is unique in this process.
fn unique() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Runs statements in the database of a URL.
pub(crate) async fn sql(url: &str, text: impl Into<String>) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(text.into())).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// The single number that a query returns.
pub(crate) async fn number(url: &str, text: impl Into<String>) -> i64 {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::query_scalar(AssertSqlSafe(text.into())).fetch_one(&mut connection).await.unwrap()
}

/// The URL of a new database on the shared server.
pub(crate) async fn database() -> String {
    let name = format!("idempotent_{}_{}", std::process::id(), unique());
    sql(shared(), format!("CREATE DATABASE {name}")).await;
    let (server, parameters) = shared().split_once('?').unwrap_or((shared(), ""));
    let (server, _) = server.rsplit_once('/').unwrap();
    format!("{server}/{name}?{parameters}")
}

fn with(url: &str, parameter: &str) -> String {
    format!("{url}&{parameter}")
}

/// A migrated store in a new database.
pub(crate) async fn store() -> (PostgresStore, String) {
    store_with(PostgresStore::options()).await
}

/// The same with these options.
async fn store_with(options: PostgresOptions) -> (PostgresStore, String) {
    let url = database().await;
    let store = options.connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    (store, url)
}

fn id() -> RecordId {
    let mut id = [0; 32];
    id[..16].copy_from_slice(OwnerToken::random().unwrap().as_bytes());
    RecordId::from_bytes(id)
}

fn request() -> Claim {
    Claim::new(Fingerprint::from_bytes([1; Fingerprint::BYTES]), OwnerToken::random().unwrap())
        .with_lease(Duration::from_secs(30))
        .with_ttl(Duration::from_secs(3600))
}

/// A store whose time a test moves by changing the times in its rows.
pub(crate) struct ShiftedStore {
    store: PostgresStore,
    /// Connects to the server without a pooler.
    pool: PgPool,
    table: String,
}

impl ShiftedStore {
    /// Shifts all times of all records. The lease of an abandoned record ended in 1970 (0), and is
    /// not shifted.
    async fn shift(&self, by: i64) {
        let set = format!(
            "lease_until = CASE lease_until WHEN 0 THEN 0 ELSE lease_until + {by} END, first_seen \
             = first_seen + {by}, completed_at = completed_at + {by}, \
             expires_at = expires_at + {by}"
        );
        let update = format!("UPDATE {} SET {set}", self.table);
        sqlx::raw_sql(AssertSqlSafe(update)).execute(&self.pool).await.unwrap();
    }
}

#[async_trait]
impl TestedStore for ShiftedStore {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    async fn advance(&self, by: Duration) {
        self.shift(-i64::try_from(by.as_millis()).unwrap()).await;
    }

    async fn set_back(&self, by: Duration) -> bool {
        self.shift(i64::try_from(by.as_millis()).unwrap()).await;
        true
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(3600)
    }
}

/// A new database whose time a test moves.
pub(crate) async fn shifted_store() -> ShiftedStore {
    let (store, url) = store().await;
    let pool = PgPool::connect(&url).await.unwrap();
    ShiftedStore { store, pool, table: "idempotency_records".to_owned() }
}

/// Runs the conformance suite on clones of a store, each with a separate table.
async fn check(store: PostgresStore, url: &str) {
    let pool = PgPool::connect(url).await.unwrap();
    let subject = || async {
        let table = format!("t{}", unique());
        let store = postgres_with_table(&store, &table).unwrap();
        ShiftedStore { store, pool: pool.clone(), table }
    };
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
    let subject = || async {
        let name = format!("t{}", unique());
        let store = postgres_with_table(&store, &name).unwrap();
        ShiftedStore { store, pool: pool.clone(), table: format!("else_where.{name}") }
    };
    conformance::check(subject).await;
    assert!(
        number(&url, "SELECT count(*) FROM pg_class WHERE relkind = 'p' AND relname ~ '^t[0-9]+$'")
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
