//! Opening a store: what is refused, and how the table is created.

use std::{error::Error, time::Duration};

use idempotent_core::{Runtime, Store, StoreError, runtime::RuntimeOptions};
use idempotent_postgres::PostgresStore;
use sqlx::{Connection, PgConnection, postgres::PgPoolOptions};
use tokio::task::JoinSet;

use crate::helpers::{database, id, number, request, sql, store, with};
use test_support::{longest_durations, servers::postgres::Postgres};

/// An error and its causes.
fn describe(error: &StoreError) -> String {
    let mut message = format!("{error:?} {error}");
    let mut source = error.source();
    while let Some(error) = source {
        message += &format!(": {error}");
        source = error.source();
    }
    message
}

async fn connect_error(url: &str) -> StoreError {
    PostgresStore::connect(url).await.expect_err("the store was opened")
}

#[tokio::test]
async fn durations_of_any_length_are_accepted() {
    let (store, url) = store().await;
    let without_cache =
        PostgresStore::connect(&with(&url, "statement-cache-capacity=0")).await.unwrap();
    let pool = PgPoolOptions::new().connect(&url).await.unwrap();
    for store in [store, without_cache, PostgresStore::from_pool(pool).await.unwrap()] {
        longest_durations::assert_accepted(store).await;
    }
}

/// Asserts that exactly this many transactions can be open.
async fn assert_transaction_limit(most: usize, store: &PostgresStore) {
    let transactions = store.transactions().unwrap();
    let mut open = Vec::new();
    for _ in 0..most {
        open.push(transactions.begin().await.unwrap());
    }
    let error = transactions.begin().await.expect_err("one more transaction began");
    assert!(error.is_transient(), "{}", describe(&error));
    for transaction in open {
        transaction.roll_back().await;
    }
}

#[tokio::test]
async fn handlers_have_as_many_transactions_as_configured() {
    let (store, url) = store().await;
    let by_url = PostgresStore::connect(&with(&url, "max_transactions=13")).await.unwrap();
    let by_option = PostgresStore::options().max_transactions(2.try_into().unwrap());
    let by_option = by_option.connect(&with(&url, "max_transactions=13")).await.unwrap();
    tokio::join!(
        assert_transaction_limit(10, &store),
        assert_transaction_limit(2, &by_option),
        assert_transaction_limit(13, &by_url)
    );
    for value in ["0", "-1", "many", "", "65536", "1&max_transactions=1"] {
        let error = connect_error(&with(&url, &format!("max_transactions={value}"))).await;
        assert!(
            !error.is_transient() && describe(&error).contains("`max_transactions`"),
            "{}",
            describe(&error)
        );
    }
}

#[tokio::test]
async fn a_read_replica_is_refused() {
    let primary = Postgres::start();
    let standby = primary.standby();
    assert_eq!(
        number(&standby.url("postgres"), "SELECT pg_is_in_recovery()::int::bigint").await,
        1
    );
    let error = connect_error(&standby.url("postgres")).await;
    assert!(
        !error.is_transient() && describe(&error).contains("pg_is_in_recovery()"),
        "{}",
        describe(&error)
    );
    PostgresStore::connect(&primary.url("postgres")).await.unwrap();
}

#[tokio::test]
async fn an_unsafe_setting_is_refused_by_its_name() {
    for (setting, value) in [("synchronous_commit", "off"), ("default_transaction_read_only", "on")]
    {
        let url = database().await;
        let name = url.rsplit_once('/').unwrap().1.split('?').next().unwrap();
        sql(&url, format!("ALTER DATABASE {name} SET {setting} = {value}")).await;
        let error = connect_error(&url).await;
        assert!(
            !error.is_transient() && describe(&error).contains(setting),
            "{}",
            describe(&error)
        );
        let pool = PgPoolOptions::new().connect(&url).await.unwrap();
        assert!(describe(&PostgresStore::from_pool(pool).await.unwrap_err()).contains(setting));
    }
}

#[tokio::test]
async fn no_error_shows_a_password() {
    let host = database().await.split_once('@').unwrap().1.to_owned();
    let urls = [
        "postgres://app:hunter2@127.0.0.1:1/nowhere".to_owned(),
        "postgres://app:hunter2@127.0.0.1:port/nowhere".to_owned(),
        "postgres://app:hunter2@/?sslmode=maybe".to_owned(),
        format!("postgres://no_such_user:hunter2@{host}"),
        format!("postgres://postgres:hunter2@{host}&sslmode=require"),
    ];
    for url in urls {
        let message = describe(&connect_error(&url).await);
        assert!(!message.contains("hunter2"), "{message}");
    }
}

#[tokio::test]
async fn a_url_that_requires_tls_is_refused_without_tls_support() {
    let error = connect_error(&format!("{}&sslmode=require", database().await)).await;
    assert!(describe(&error).contains("TLS"), "{}", describe(&error));
}

#[tokio::test]
async fn an_unreachable_server_is_a_transient_error_with_its_cause() {
    let error = connect_error("postgres://127.0.0.1:1/nowhere").await;
    assert!(error.is_transient() && describe(&error).contains("refused"), "{}", describe(&error));
}

#[tokio::test]
async fn a_missing_table_is_a_permanent_error_that_names_migrate() {
    let store = PostgresStore::connect(&database().await).await.unwrap();
    let in_transaction =
        async |wait| store.transactions().unwrap().claim(&id(), &request(), wait).await.map(drop);
    for claimed in [
        store.claim(&id(), &request()).await.map(drop),
        in_transaction(Duration::ZERO).await,
        in_transaction(Duration::from_secs(1)).await,
    ] {
        let error = claimed.unwrap_err();
        assert!(
            !error.is_transient() && describe(&error).contains("call `migrate()`"),
            "{}",
            describe(&error)
        );
    }
    // The connections can be used afterwards.
    store.migrate().await.unwrap();
    in_transaction(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn a_table_that_was_dropped_without_its_list_is_refused_with_both_ways_out() {
    let (store, url) = store().await;
    sql(&url, "DROP TABLE idempotency_records").await;
    let refused = describe(&store.check().await.unwrap_err());
    assert!(refused.contains("call `migrate()`"), "{refused}");
    let refused = describe(&store.migrate().await.unwrap_err());
    assert!(refused.contains("drop `idempotency_records_migrations`"), "{refused}");
    sql(&url, "DROP TABLE idempotency_records_migrations").await;
    store.migrate().await.unwrap();
    store.claim(&id(), &request()).await.unwrap();
}

const NO_KEY: &str = "its column `id` is not unique";

#[tokio::test]
async fn a_check_that_has_passed_finds_a_table_that_was_altered_since() {
    for (alter, named) in [
        ("DROP CONSTRAINT idempotency_records_pkey", NO_KEY),
        ("DROP CONSTRAINT idempotency_records_pkey, ADD UNIQUE (id, owner)", NO_KEY),
        ("DROP CONSTRAINT idempotency_records_pkey, ADD UNIQUE (id) DEFERRABLE", NO_KEY),
        (
            "DROP CONSTRAINT idempotency_records_pkey;
             CREATE INDEX ON idempotency_records (id)",
            NO_KEY,
        ),
        (
            "DROP CONSTRAINT idempotency_records_pkey;
             CREATE UNIQUE INDEX ON idempotency_records (id) WHERE state = 1",
            NO_KEY,
        ),
        (
            "DROP CONSTRAINT idempotency_records_pkey;
             CREATE UNIQUE INDEX ON idempotency_records (id)",
            "",
        ),
        ("ADD COLUMN tenant text NOT NULL", "its columns tenant must not be null"),
        ("ADD COLUMN tenant text NOT NULL DEFAULT ''", ""),
        ("RENAME COLUMN kept TO kept_before", "it lacks the columns kept"),
        ("RENAME COLUMN watch TO watched", "it lacks the columns watch"),
        (
            "ADD COLUMN n int; DROP TABLE idempotency_records_audit",
            "_audit` cannot be used: it does",
        ),
        (
            "ADD COLUMN n int; ALTER TABLE idempotency_records_audit RENAME actor TO who",
            "_audit` cannot be used: it lacks the columns actor",
        ),
        (
            "ADD COLUMN n int; ALTER TABLE idempotency_records_audit ADD tenant text NOT NULL",
            "_audit` cannot be used: its columns tenant must not be null",
        ),
    ] {
        for parts in [0, 2] {
            let url = database().await;
            let store = PostgresStore::options().partitions(parts).connect(&url).await.unwrap();
            store.migrate().await.unwrap();
            let runtime = Runtime::new(store.clone(), RuntimeOptions::default());
            runtime.check().await.unwrap();
            sql(&url, format!("ALTER TABLE idempotency_records {alter}")).await;
            for checked in [runtime.check().await, store.migrate().await] {
                match checked {
                    Ok(()) => assert_eq!(named, ""),
                    Err(error) => {
                        let shown = describe(&error);
                        assert!(!named.is_empty() && shown.contains(named), "{shown}");
                        assert!(!error.is_transient(), "{shown}");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_table_of_a_later_release_is_refused() {
    let (store, url) = store().await;
    sql(&url, "INSERT INTO idempotency_records_migrations VALUES (99, 99, 0)").await;
    let error = store.migrate().await.unwrap_err();
    assert!(
        !error.is_transient() && describe(&error).contains("version 99"),
        "{}",
        describe(&error)
    );
}

#[tokio::test]
async fn table_names_are_identifiers() {
    let url = database().await;
    let options = PostgresStore::options;
    for (options, named) in [
        (options().table("a\"b"), "the option `table` is invalid"),
        (options().schema("a.b"), "the option `schema` is invalid"),
    ] {
        let error = options.connect(&url).await.unwrap_err();
        assert!(!error.is_transient() && describe(&error).contains(named), "{}", describe(&error));
    }
    assert!(options().table("a_b").schema("a_b").connect(&url).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_migrations_create_one_table() {
    let url = database().await;
    let stores = (0..8).map(|_| {
        let url = url.clone();
        async move {
            let options = PostgresStore::options().schema("s").partitions(2);
            options.connect(&url).await.unwrap().migrate().await
        }
    });
    for migrated in stores.collect::<JoinSet<_>>().join_all().await {
        migrated.unwrap();
    }
    assert_eq!(number(&url, "SELECT count(*) FROM s.idempotency_records_migrations").await, 1);
    assert_eq!(
        number(
            &url,
            "SELECT count(*) FROM pg_inherits WHERE inhparent = 's.idempotency_records'::regclass"
        )
        .await,
        2
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_waits_for_another_one() {
    let url = database().await;
    let mut other = PgConnection::connect(&url).await.unwrap();
    // Takes the lock like a migration that takes longer than other statements wait for locks.
    let lock = "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('idempotent ', 0))";
    sqlx::raw_sql(lock).execute(&mut other).await.unwrap();
    let migration = tokio::spawn({
        let store = PostgresStore::connect(&url).await.unwrap();
        async move { store.migrate().await }
    });
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!migration.is_finished(), "the migration did not wait");
    other.close().await.unwrap();
    migration.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_up_to_date_store_needs_no_create_privilege() {
    let (_store, url) = store().await;
    let role = format!("reader_{}", std::process::id());
    sql(
        &url,
        format!(
            "CREATE ROLE {role} LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON \
             idempotency_records TO {role}; \
             GRANT SELECT, INSERT ON idempotency_records_audit TO {role}; \
             GRANT SELECT ON idempotency_records_migrations TO {role}"
        ),
    )
    .await;
    let pool = PgPoolOptions::new()
        .connect_with(url.parse::<sqlx::postgres::PgConnectOptions>().unwrap().username(&role));
    let store = PostgresStore::from_pool(pool.await.unwrap()).await.unwrap();
    store.migrate().await.unwrap();
    store.claim(&id(), &request()).await.unwrap();
    drop(store);
    sql(&url, format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}")).await;
}
