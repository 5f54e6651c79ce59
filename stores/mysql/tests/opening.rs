//! What is refused when a store is opened, migrated or checked, before any handler runs.

use std::error::Error as _;

use idempotent_core::{Store, StoreError};
use idempotent_mysql::{MySqlStore, internals::verify_mysql_url};
use sqlx::{Connection as _, Executor as _, mysql::MySqlPoolOptions};
use test_support::servers::{
    mariadb::{MariaDb, database, database_on, number, shared, sql},
    process::unique_name,
};
use tokio::task::JoinSet;

use crate::{helpers::store, pooler::Pooler};

fn describe(error: &StoreError) -> String {
    let mut shown = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        shown.push_str(&format!(": {error}"));
        cause = error.source();
    }
    shown
}

fn assert_refused(result: Result<(), StoreError>, expected: &str) {
    let error = result.expect_err(expected);
    let shown = describe(&error);
    assert!(!error.is_transient() && shown.contains(expected), "{shown}");
}

async fn opened(url: &str) -> Result<(), StoreError> {
    MySqlStore::connect(url).await.map(drop)
}

#[tokio::test]
async fn a_setting_under_which_records_could_be_lost_is_named() {
    for (setting, expected) in [
        ("--read-only=1", "`read_only` is `ON`"),
        ("--innodb-flush-log-at-trx-commit=2", "`innodb_flush_log_at_trx_commit` is `2`"),
        ("--max-allowed-packet=1M", "`max_allowed_packet` is `1048576`"),
    ] {
        let server = MariaDb::with(&["--innodb-flush-method=nosync", setting]);
        let url = database_on(&server.url("mysql")).await;
        assert_refused(opened(&url).await, expected);
    }
}

#[tokio::test]
async fn a_url_without_a_database_is_refused() {
    let (server, _) = shared().rsplit_once('/').unwrap();
    assert_refused(opened(server).await, "names no database");
}

#[tokio::test]
async fn an_invalid_url_is_refused_without_its_password() {
    for (url, expected) in [
        ("mysql://u:hunter2@h/d?ssl-mode=hunter2", "`ssl-mode`"),
        ("mysql://u:hunter2@h/d?max_transactions=hunter2", "`max_transactions`"),
        ("mysql://u:hunter2@h/d?hunter2=1", "the parameters are"),
        ("mysql://u:hunter2@h/d?sockett=1", "write `socket`"),
        ("mysql://u:hunter2@h:port/d", "invalid port"),
    ] {
        let error = verify_mysql_url(url).unwrap_err();
        let shown = describe(&error);
        assert!(shown.contains(expected), "{url}: {shown}");
        assert!(!format!("{error:?} {shown}").contains("hunter2"), "{url}: {shown}");
    }
}

#[tokio::test]
async fn a_table_that_was_not_migrated_or_was_dropped_is_named() {
    let url = database().await;
    let store = MySqlStore::connect(&url).await.unwrap();
    assert_refused(store.check().await, "call `migrate()`");
    store.migrate().await.unwrap();
    store.check().await.unwrap();
    sql(&url, "DROP TABLE idempotency_records").await;
    assert_refused(store.check().await, "`idempotency_records` does not exist");
    assert_refused(store.migrate().await, "if it was dropped");
}

#[tokio::test]
async fn a_table_that_cannot_be_used_is_named() {
    for (change, expected) in [
        ("ALTER TABLE idempotency_records ENGINE = Aria", "`ENGINE of the table` is `Aria`"),
        ("ALTER TABLE idempotency_records_audit ENGINE = Aria", "`ENGINE of the log` is `Aria`"),
        ("ALTER TABLE idempotency_records DROP PRIMARY KEY", "is not unique"),
        ("ALTER TABLE idempotency_records DROP COLUMN steps", "lacks the columns steps"),
        ("ALTER TABLE idempotency_records ADD COLUMN mine INT NOT NULL", "columns mine"),
        ("ALTER TABLE idempotency_records_audit DROP COLUMN reason", "lacks the columns reason"),
        ("DROP TABLE idempotency_records_audit", "`idempotency_records_audit` cannot be used"),
    ] {
        let (store, url) = store().await;
        sql(&url, change).await;
        assert_refused(store.check().await, expected);
        assert_refused(store.migrate().await, expected);
    }
}

#[tokio::test]
async fn a_missing_privilege_is_named_before_the_first_claim() {
    let records = ["SELECT", "INSERT", "UPDATE", "DELETE"];
    let cases = records.map(|missing| ("", missing)).into_iter();
    for (log, missing) in cases.chain(["SELECT", "INSERT"].map(|missing| ("_audit", missing))) {
        let (_, url) = store().await;
        let (base, name) = url.rsplit_once('/').unwrap();
        let (user, table) = (unique_name(), format!("{name}.idempotency_records"));
        let granted = |of: &str, all: &[&str]| {
            let left = all.iter().filter(|one| of != log || **one != missing);
            left.copied().collect::<Vec<_>>().join(", ")
        };
        let grants = format!(
            "CREATE USER {user}; GRANT SELECT ON {table}_migrations TO {user}; \
             GRANT {} ON {table} TO {user}; GRANT {} ON {table}_audit TO {user}",
            granted("", &records),
            granted("_audit", &records[..2]),
        );
        sql(&url, grants).await;
        let url = format!("{}/{name}", base.replace("test@", &format!("{user}@")));
        let store = MySqlStore::connect(&url).await.unwrap();
        assert_refused(store.check().await, "lacks a privilege");
        assert_refused(store.check().await, missing);
        let grant = format!("GRANT {missing} ON {table}{log} TO {user}");
        sql(shared(), grant).await;
        let store = MySqlStore::connect(&url).await.unwrap();
        store.check().await.unwrap();
        // A table that is up to date needs no more.
        store.migrate().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migrations_side_by_side_all_pass() {
    let url = database().await;
    let migrations = (0..8).map(|_| {
        let url = url.clone();
        async move { MySqlStore::connect(&url).await.unwrap().migrate().await }
    });
    for migrated in migrations.collect::<JoinSet<_>>().join_all().await {
        migrated.unwrap();
    }
    let versions = "SELECT count(*) FROM idempotency_records_migrations";
    assert_eq!(number(&url, versions).await, 1);
}

/// The server commits each statement of a migration by itself.
#[tokio::test]
async fn a_migration_that_was_interrupted_is_finished() {
    let (store, url) = store().await;
    sql(&url, "DELETE FROM idempotency_records_migrations; DROP TABLE idempotency_records_audit")
        .await;
    store.migrate().await.unwrap();
    store.check().await.unwrap();
}

#[tokio::test]
async fn a_table_of_a_later_release_is_refused_unless_it_is_compatible() {
    let (store, url) = store().await;
    sql(&url, "INSERT INTO idempotency_records_migrations VALUES (2, 1, 0)").await;
    store.migrate().await.unwrap();
    store.check().await.unwrap();
    sql(&url, "INSERT INTO idempotency_records_migrations VALUES (3, 3, 0)").await;
    for refused in [store.migrate().await, store.check().await] {
        assert_refused(refused, "upgrade this instance");
    }
}

/// A pool's `after_connect` prepares each of the store's connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_opened_as_the_pool_opens_its_own() {
    let url = database().await;
    let (base, name) = url.rsplit_once('/').unwrap();
    sql(&url, format!("CREATE DATABASE {name}_other")).await;
    let pool = MySqlPoolOptions::new().max_connections(3).after_connect(|connection, _| {
        Box::pin(async move { connection.execute("SET @hooked = 1").await.map(drop) })
    });
    let pool = pool.connect(&format!("{base}/{name}")).await.unwrap();
    let store = MySqlStore::from_pool(pool).await.unwrap();
    store.migrate().await.unwrap();
    let mut transaction = store.transactions().unwrap().begin().await.unwrap();
    let connection = transaction.connection_mut().downcast_mut::<sqlx::MySqlConnection>().unwrap();
    let hooked: Option<i64> =
        sqlx::query_scalar("SELECT @hooked").fetch_one(connection).await.unwrap();
    assert_eq!(hooked, Some(1));
    transaction.roll_back().await;
}

/// It hands the session of one connection to another, as a multiplexing ProxySQL does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_shares_sessions_is_refused() {
    let url = database().await;
    let pooler = Pooler::in_front_of(&url).await;
    assert_refused(opened(&pooler.url).await, "a pooler between the store and the server");
}

/// Without the tables of others: the privileges on one database are enough.
#[tokio::test]
async fn the_user_needs_no_privilege_on_the_server() {
    let url = database().await;
    let (base, name) = url.rsplit_once('/').unwrap();
    let user = unique_name();
    sql(&url, format!("CREATE USER {user}; GRANT ALL ON {name}.* TO {user}")).await;
    let url = format!("{}/{name}", base.replace("test@", &format!("{user}@")));
    let store = MySqlStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    store.check().await.unwrap();
    let facts = store.administration().unwrap().measure().await.unwrap();
    assert!(facts.server.as_str().starts_with("MariaDB "), "{facts:?}");
}

/// The section of `MIGRATIONS.md` creates what `migrate` does.
#[tokio::test]
async fn the_documented_sql_creates_the_same_tables() {
    let document = include_str!("../../../MIGRATIONS.md");
    let (_, section) = document.split_once("## MySQL and MariaDB, version 1").unwrap();
    let (_, text) = section.split_once("```sql\n").unwrap();
    let (text, _) = text.split_once("```").unwrap();
    let by_hand = database().await;
    sql(&by_hand, text).await;
    let (_, migrated) = store().await;
    for table in ["", "_migrations", "_audit"] {
        let shown = async |url: &str| {
            let mut connection = sqlx::MySqlConnection::connect(url).await.unwrap();
            let show = format!("SHOW CREATE TABLE idempotency_records{table}");
            let row = sqlx::raw_sql(sqlx::AssertSqlSafe(show)).fetch_one(&mut connection).await;
            sqlx::Row::get::<String, _>(&row.unwrap(), 1)
        };
        assert_eq!(shown(&by_hand).await, shown(&migrated).await);
    }
    let store = MySqlStore::connect(&by_hand).await.unwrap();
    store.check().await.unwrap();
    store.migrate().await.unwrap();
}
