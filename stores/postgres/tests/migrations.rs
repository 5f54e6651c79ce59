//! Tables that an operator or another release has created or migrated.

use bytes::Bytes;
use idempotent_core::{
    Lease, OwnerToken, Store,
    protocol::{ClaimOutcome, Fence, Rejection},
};
use idempotent_postgres::{PostgresStore, internals::postgres_with_table};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use tokio::task::JoinSet;

use crate::helpers::{database, id, number, request, sql, store};

const DOCUMENT: &str = include_str!("../../../MIGRATIONS.md");

/// The document's SQL for Postgres.
fn documented_sql() -> &'static str {
    let section = DOCUMENT.split("\n## Postgres, version 1\n").nth(1).unwrap();
    section.split("```sql\n").nth(1).unwrap().split("```").next().unwrap()
}

/// The catalog's description of the tables, without generated names.
async fn describe(url: &str) -> Vec<String> {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let text = "SELECT c.relname || ' ' || coalesce(c.reloptions::text, '') || ' ' || a.attname \
        || ' ' || a.atttypid::regtype || a.attnotnull
                FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relname LIKE \
                'idempotency%' AND a.attnum > 0
                UNION ALL SELECT indexdef FROM pg_indexes WHERE tablename LIKE 'idempotency%'
                UNION ALL SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE \
                conrelid::regclass::text LIKE 'idempotency%'
                ORDER BY 1";
    let rows =
        sqlx::raw_sql(AssertSqlSafe(text.to_owned())).fetch_all(&mut connection).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn the_documented_sql_creates_what_migrate_creates() {
    let url = database().await;
    sql(&url, format!("BEGIN; {} COMMIT;", documented_sql())).await;
    let (_, migrated) = store().await;
    let (by_hand, by_migrate) = (describe(&url).await, describe(&migrated).await);
    assert!(by_migrate.len() >= 20, "{by_migrate:#?}");
    assert_eq!(by_hand, by_migrate);
}

/// The server's query plan for looking up one record.
async fn plan(url: &str) -> String {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let text = "SET plan_cache_mode = force_generic_plan;
                PREPARE look (bytea) AS SELECT recording FROM idempotency_records WHERE id = $1;
                EXPLAIN EXECUTE look('')";
    let rows = sqlx::raw_sql(text).fetch_all(&mut connection).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn an_empty_table_is_searched_with_its_index() {
    let (_, url) = store().await;
    sql(&url, "VACUUM ANALYZE idempotency_records").await;
    assert!(plan(&url).await.contains("Index Scan"), "{}", plan(&url).await);
    // Without the store's table setting, `VACUUM` truncates the file, and the plan changes.
    sql(&url, "ALTER TABLE idempotency_records SET (vacuum_truncate = true)").await;
    sql(&url, "VACUUM ANALYZE idempotency_records").await;
    assert!(plan(&url).await.contains("Seq Scan"), "{}", plan(&url).await);
}

#[tokio::test]
async fn a_user_without_create_privileges_works_with_existing_tables() {
    let url = database().await;
    let user = format!(
        "clerk_{}",
        number(&url, "SELECT oid::bigint FROM pg_database WHERE datname = current_database()")
            .await
    );
    let grants = format!(
        "CREATE ROLE {user} LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_records TO \
         {user};
         GRANT SELECT ON idempotency_records_migrations TO {user}; \
         GRANT SELECT, INSERT ON idempotency_records_audit TO {user}; \
         REVOKE CREATE ON SCHEMA public FROM PUBLIC;"
    );
    sql(&url, format!("{} {grants}", documented_sql())).await;
    let store =
        PostgresStore::connect(&url.replace("postgres@", &format!("{user}@"))).await.unwrap();
    store.migrate().await.unwrap();
    assert_eq!(store.claim(&id(), &request()).await.unwrap(), ClaimOutcome::Granted { attempt: 1 });
    assert_eq!(store.purge(10).await.unwrap(), 0);
    sql(&url, format!("DROP OWNED BY {user}; DROP ROLE {user};")).await;
}

#[tokio::test]
async fn a_table_of_a_later_release_is_shared_if_that_release_allows_it() {
    let (shared, url) = store().await;
    sql(&url, "INSERT INTO idempotency_records_migrations VALUES (2, 2, 0), (3, 1, 0)").await;
    let granted = ClaimOutcome::Granted { attempt: 1 };
    for store in [shared, PostgresStore::connect(&url).await.unwrap()] {
        store.migrate().await.unwrap();
        store.check().await.unwrap();
        let (id, request) = (id(), request());
        assert_eq!(store.claim(&id, &request).await.unwrap(), granted);
        let lease = Lease { id, owner: request.owner };
        assert_eq!(
            store.complete(&lease, &Bytes::from_static(b"done")).await.unwrap(),
            Fence::Passed
        );
        let again = request.with_owner(OwnerToken::random().unwrap());
        assert_eq!(
            store.claim(&id, &again).await.unwrap(),
            ClaimOutcome::Rejected(Rejection::Completed(Bytes::from_static(b"done")))
        );
    }
    let (store, url) = store().await;
    sql(&url, "INSERT INTO idempotency_records_migrations VALUES (2, 1, 0), (7, 6, 0)").await;
    for error in [store.migrate().await.unwrap_err(), store.check().await.unwrap_err()] {
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(!error.is_transient());
        for part in ["version 7", "version 6 or later", "up to 1"] {
            assert!(cause.contains(part), "{cause}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_one_new_schema_are_migrated_concurrently() {
    let url = database().await;
    for round in 0..5 {
        let options = PostgresStore::options().schema(format!("new_{round}"));
        let store = options.connect(&url).await.unwrap();
        let migrations = (0..8).map(|table| {
            let store = postgres_with_table(&store, &format!("t{table}")).unwrap();
            async move { store.migrate().await.unwrap() }
        });
        migrations.collect::<JoinSet<_>>().join_all().await;
    }
}
