//! A missing privilege or an unsafe setting is reported before any handler runs.

use std::error::Error;

use idempotent_core::{
    Abandoned, Lease, Runtime, Store, StoreError,
    protocol::{ClaimOutcome, Rejection, Removal, Resolution},
    runtime::RuntimeOptions,
};
use idempotent_postgres::PostgresStore;

use crate::helpers::{database, id, number, request, sql};
use test_support::{decision, servers::pgbouncer::PgBouncer};

struct Role {
    url: String,
    name: String,
    table: String,
}

impl Role {
    /// A role with these privileges on the table of a new database, which it does not own.
    async fn with(granted: &str, parts: u16) -> Self {
        let url = database().await;
        let options = PostgresStore::options().schema("records").partitions(parts);
        let owner = options.connect(&url).await.unwrap();
        owner.migrate().await.unwrap();
        let oid = "SELECT oid::bigint FROM pg_database WHERE datname = current_database()";
        let (name, table) =
            (format!("role_{}", number(&url, oid).await), "records.idempotency_records".to_owned());
        let grants = format!(
            "CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA records TO {name};
             GRANT SELECT ON records.idempotency_records_migrations TO {name}; \
             GRANT SELECT, INSERT ON {table}_audit TO {name}; \
             GRANT {granted} ON {table} TO {name}"
        );
        sql(&url, grants).await;
        Self { url, name, table }
    }

    async fn store(&self) -> PostgresStore {
        let url = self.url.replace("postgres@", &format!("{}@", self.name));
        PostgresStore::options().schema("records").connect(&url).await.unwrap()
    }

    /// Asserts that each check fails permanently, with this text and the names of role and table.
    async fn assert_refused(&self, expected: &str) {
        let store = self.store().await;
        let runtime = Runtime::new(store.clone(), RuntimeOptions::default());
        for error in [store.check().await, store.migrate().await, runtime.check().await] {
            let error = error.expect_err(expected);
            let message = describe(&error);
            assert!(!error.is_transient(), "{message}");
            assert!(
                message.contains(expected)
                    && message.contains(&self.name)
                    && message.contains("idempotency_records"),
                "{message}"
            );
        }
    }

    async fn drop(self) {
        sql(&self.url, format!("DROP OWNED BY {0}; DROP ROLE {0}", self.name)).await;
    }
}

fn describe(error: &StoreError) -> String {
    format!("{error}: {}", error.source().unwrap())
}

#[tokio::test]
async fn a_missing_privilege_is_named_before_the_first_claim() {
    let all = ["SELECT", "INSERT", "UPDATE", "DELETE"];
    for (number, missing) in all.into_iter().enumerate() {
        let granted = all.into_iter().filter(|one| *one != missing).collect::<Vec<_>>().join(", ");
        let role = Role::with(&granted, if number == 0 { 4 } else { 0 }).await;
        role.assert_refused(missing).await;
        role.drop().await;
    }
    for missing in ["SELECT", "INSERT"] {
        let role = Role::with("SELECT, INSERT, UPDATE, DELETE", 0).await;
        sql(&role.url, format!("REVOKE {missing} ON {}_audit FROM {}", role.table, role.name))
            .await;
        role.assert_refused(&format!("grant it {missing} on the log")).await;
        role.drop().await;
    }
}

#[tokio::test]
async fn a_schema_that_may_not_be_used_is_named() {
    let role = Role::with("SELECT, INSERT, UPDATE, DELETE", 0).await;
    sql(&role.url, format!("REVOKE USAGE ON SCHEMA records FROM {}", role.name)).await;
    let error = role.store().await.check().await.unwrap_err();
    assert!(
        !error.is_transient()
            && describe(&error).contains("USAGE")
            && describe(&error).contains(&role.name),
        "{error:?}"
    );
    // Where the table has no schema name, the server skips schemas without `USAGE`.
    sql(&role.url, format!("ALTER ROLE {} SET search_path = 'records, public'", role.name)).await;
    let url = role.url.replace("postgres@", &format!("{}@", role.name));
    sql(&role.url, format!("ALTER ROLE {} SET search_path = records, public", role.name)).await;
    let error = PostgresStore::connect(&url).await.unwrap().check().await.unwrap_err();
    assert!(
        describe(&error).contains("USAGE") && describe(&error).contains("`records`"),
        "{error:?}"
    );
    role.drop().await;
}

#[tokio::test]
async fn row_level_security_that_applies_to_the_role_is_refused() {
    let role = Role::with("SELECT, INSERT, UPDATE, DELETE", 0).await;
    sql(&role.url, format!("ALTER TABLE {} ENABLE ROW LEVEL SECURITY", role.table)).await;
    role.assert_refused("row-level security").await;
    // The policy does not apply to the owner of the table.
    let owner = PostgresStore::options().schema("records").connect(&role.url).await.unwrap();
    owner.check().await.unwrap();
    role.drop().await;
    let role = Role::with("SELECT, INSERT, UPDATE, DELETE", 0).await;
    sql(&role.url, format!("ALTER TABLE {}_audit ENABLE ROW LEVEL SECURITY", role.table)).await;
    role.assert_refused("row-level security hides rows of the log").await;
    role.drop().await;
}

/// A role whose privilege was revoked since the check.
#[tokio::test]
async fn a_decision_that_the_role_may_not_log_changes_nothing() {
    let role = Role::with("SELECT, INSERT, UPDATE, DELETE", 0).await;
    let store = role.store().await;
    store.check().await.unwrap();
    let (id, claim) = (id(), request());
    store.claim(&id, &claim).await.unwrap();
    store.abandon(&Lease { id, owner: claim.owner }, Abandoned::Hold).await.unwrap();
    let before = store.look_up(&id).await.unwrap().unwrap().record;
    sql(&role.url, format!("REVOKE INSERT ON {}_audit FROM {}", role.table, role.name)).await;
    let audit = decision(&id);
    let error = store.resolve(&id, &claim.owner, &Resolution::Release, &audit).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    assert!(describe(&error).contains("idempotency_records_audit"), "{}", describe(&error));
    let removal = Removal::of_any(claim.owner);
    store.administration().unwrap().remove(&id, &removal, &audit).await.unwrap_err();
    assert_eq!(store.look_up(&id).await.unwrap().unwrap().record, before);
    // Requests need no log.
    let next = store.claim(&crate::helpers::id(), &request()).await.unwrap();
    assert_eq!(next, ClaimOutcome::Granted { attempt: 1 });
    role.drop().await;
}

#[tokio::test]
async fn a_role_with_all_required_privileges_passes_and_works() {
    for parts in [0, 4] {
        let role = Role::with("SELECT, INSERT, UPDATE, DELETE", parts).await;
        let store = role.store().await;
        store.check().await.unwrap();
        let (id, claim) = (id(), request());
        assert_eq!(store.claim(&id, &claim).await.unwrap(), ClaimOutcome::Granted { attempt: 1 });
        store.complete(&Lease { id, owner: claim.owner }, &"done".into()).await.unwrap();
        drop(store);
        role.drop().await;
    }
}

#[tokio::test]
async fn a_store_can_be_checked_behind_a_pooler() {
    let server = test_support::servers::postgres::Postgres::start();
    let pooler = PgBouncer::in_front_of(server.port);
    let store = PostgresStore::connect(&pooler.url("postgres")).await.unwrap();
    let error = store.check().await.unwrap_err();
    assert!(!error.is_transient() && describe(&error).contains("call `migrate()`"), "{error:?}");
    store.migrate().await.unwrap();
    store.check().await.unwrap();
}

#[tokio::test]
async fn a_check_finds_a_setting_that_has_become_unsafe() {
    let (store, url) = crate::helpers::store().await;
    store.check().await.unwrap();
    let name = url.rsplit_once('/').unwrap().1.split('?').next().unwrap();
    sql(&url, format!("ALTER DATABASE {name} SET synchronous_commit = off")).await;
    // Open sessions keep the settings that they began with.
    sql(
        &url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = \
        'idempotency' AND datname = current_database()",
    )
    .await;
    let error = store.check().await.unwrap_err();
    assert!(!error.is_transient() && describe(&error).contains("synchronous_commit"), "{error:?}");
}

#[tokio::test]
async fn an_unreadable_column_is_an_error_for_that_record_only() {
    let (store, url) = crate::helpers::store().await;
    let (id, other) = (id(), crate::helpers::id());
    for id in [&id, &other] {
        store.claim(id, &request()).await.unwrap();
    }
    let literal = id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for damage in [
        "owner = 'x'",
        "state = 9",
        "abandoned = 7",
        "attempt = -1",
        "state = 2",
        "fingerprint = ''",
        "expires_at = -5",
        "lease = -1",
    ] {
        sql(
            &url,
            format!(
                "CREATE TABLE kept AS SELECT * FROM idempotency_records WHERE id = '\\x{literal}'"
            ),
        )
        .await;
        sql(&url, format!("UPDATE idempotency_records SET {damage} WHERE id = '\\x{literal}'"))
            .await;
        let in_transaction = store
            .transactions()
            .unwrap()
            .claim(&id, &request(), std::time::Duration::from_millis(80))
            .await;
        let errors = [
            store.claim(&id, &request()).await.map(drop).unwrap_err(),
            store.look_up(&id).await.map(drop).unwrap_err(),
            in_transaction.map(drop).unwrap_err(),
        ];
        assert!(errors.iter().all(StoreError::is_unreadable), "{damage}: {errors:?}");
        assert!(matches!(
            store.claim(&other, &request()).await.unwrap(),
            ClaimOutcome::Rejected(Rejection::InFlight { .. })
        ));
        let restore = "DELETE FROM idempotency_records WHERE id IN (SELECT id FROM kept); INSERT \
            INTO idempotency_records SELECT * FROM kept; DROP TABLE kept";
        sql(&url, restore).await;
    }
}
