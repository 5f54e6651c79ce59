//! Servers and poolers that speak the protocol of Postgres, and on which a key could be claimed
//! twice. They are refused when the store is opened.

use std::{error::Error as _, time::Duration};

use bytes::Bytes;
use idempotent_core::{
    Lease, Store, StoreError,
    protocol::{ClaimOutcome, Fence, Rejection},
    store::TransactionClaim,
};
use idempotent_postgres::PostgresStore;
use sqlx::{PgPool, postgres::PgConnectOptions};

use crate::{
    claims,
    helpers::{database, id, request, sql, with},
};
use test_support::{
    proxy::Proxy,
    servers::{pgbouncer::PgBouncer, postgres::Postgres},
};

/// A database in which the function that takes an advisory lock is another one, found before that
/// of the server. It stands for a server that has the name without the lock.
async fn database_with_locks(body: &str) -> String {
    let url = database().await;
    let name = url.rsplit_once('/').unwrap().1.split('?').next().unwrap();
    let create = format!(
        "CREATE SCHEMA other_server; CREATE SEQUENCE other_server.calls;
         CREATE FUNCTION other_server.pg_try_advisory_xact_lock(bigint) RETURNS boolean
         LANGUAGE plpgsql AS $$ BEGIN {body} END $$;
         ALTER DATABASE {name} SET search_path = other_server, pg_catalog, public"
    );
    sql(&url, create).await;
    url
}

/// The errors of each way to open a store.
async fn refusals(url: &str) -> Vec<StoreError> {
    // A pooler refuses the other parameter.
    let options = url.parse::<PgConnectOptions>().unwrap().extra_float_digits(None);
    let pool = PgPool::connect_with(options).await.unwrap();
    vec![
        PostgresStore::connect(url).await.unwrap_err(),
        PostgresStore::connect(&with(url, "statement-cache-capacity=0")).await.unwrap_err(),
        PostgresStore::from_pool(pool).await.unwrap_err(),
    ]
}

fn assert_named(error: &StoreError, named: &[&str]) {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        message += &format!(": {error}");
        source = error.source();
    }
    assert!(!error.is_transient(), "{message}");
    assert!(named.iter().all(|named| message.contains(named)), "{message}");
}

/// Fails if a store opens on a server like CockroachDB before its advisory locks locked anything.
#[tokio::test]
async fn advisory_locks_that_keep_nobody_out_are_refused() {
    let url = database_with_locks("RETURN true;").await;
    for error in refusals(&url).await {
        assert_named(&error, &["`pg_try_advisory_xact_lock`", "use PostgreSQL"]);
    }
}

/// Fails if a store opens on a server like YugabyteDB without `ysql_yb_enable_advisory_locks`, or
/// reports its refusal as an outage.
#[tokio::test]
async fn advisory_locks_that_a_server_does_not_support_are_refused() {
    for code in ["feature_not_supported", "undefined_function"] {
        let raise = format!("RAISE 'advisory locks are disabled' USING ERRCODE = '{code}';");
        let url = database_with_locks(&raise).await;
        for error in refusals(&url).await {
            let named = ["`pg_try_advisory_xact_lock`", "use PostgreSQL", "locks are disabled"];
            assert_named(&error, &named);
        }
    }
}

/// Fails if a store opens although the messages of a transaction reach different sessions, of which
/// only the first one has the lock.
#[tokio::test]
async fn a_transaction_that_changes_its_session_is_refused() {
    let url = database_with_locks("RETURN nextval('other_server.calls') % 2 = 1;").await;
    for error in refusals(&url).await {
        assert_named(&error, &["do not share a session", "pool_mode = transaction"]);
    }
}

/// Fails if a connection that is lost once while a store is opened counts as a pooler without
/// transactions.
#[tokio::test]
async fn a_connection_that_is_lost_once_is_an_outage() {
    let ends = "IF nextval('other_server.calls') = 1 THEN
            PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(10);
        END IF; RETURN true;";
    let url = database_with_locks(ends).await;
    let error = PostgresStore::connect(&url).await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
}

/// Fails if a pooler that has no transactions is reported as an outage, or opens a store.
#[tokio::test]
async fn a_pooler_in_statement_mode_is_refused_by_its_setting() {
    let server = Postgres::start();
    let pooler = PgBouncer::in_statement_mode(server.port);
    let url = format!("{}?application_name=idempotency", pooler.url("postgres"));
    for error in refusals(&url).await {
        assert_named(&error, &["pool_mode = transaction"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_in_session_mode_serves_claims_and_transactions() {
    let server = Postgres::start();
    let pooler = PgBouncer::in_session_mode(server.port);
    let store = PostgresStore::connect(&pooler.url("postgres")).await.unwrap();
    store.migrate().await.unwrap();
    store.check().await.unwrap();
    claims::race(&store, 16).await;
    let (id, claim, wait) = (id(), request(), Duration::ZERO);
    let lease = Lease { id, owner: claim.owner };
    let claimed = store.transactions().unwrap().claim(&id, &claim, wait).await.unwrap();
    let TransactionClaim::Granted { transaction, .. } = claimed else { panic!("a new key") };
    let other = store.transactions().unwrap().claim(&id, &request(), wait).await.unwrap();
    assert!(matches!(other, TransactionClaim::Rejected(Rejection::InFlight { .. })));
    let done = Bytes::from_static(b"done");
    assert_eq!(transaction.complete_and_commit(&lease, &done).await.unwrap(), Fence::Passed);
    let replay = ClaimOutcome::Rejected(Rejection::Completed(done));
    assert_eq!(store.claim(&id, &request()).await.unwrap(), replay);
}

/// A pooler whose only session has the lock cannot be asked for a second one.
#[tokio::test]
async fn a_pooler_with_one_session_is_not_refused() {
    let server = Postgres::start();
    let pooler = PgBouncer::with_one_session(server.port);
    let store = PostgresStore::connect(&pooler.url("postgres")).await.unwrap();
    store.migrate().await.unwrap();
    store.check().await.unwrap();
    let granted = store.claim(&id(), &request()).await.unwrap();
    assert_eq!(granted, ClaimOutcome::Granted { attempt: 1 });
}

/// While the store verifies that locks keep a second session out, opening that takes so long that
/// the server ends the first one, and with it the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_whose_session_was_ended_is_not_taken_for_one_that_does_not_lock() {
    let url = database().await;
    let options: PgConnectOptions = url.parse().unwrap();
    let proxy = Proxy::in_front_of(options.get_host(), options.get_port()).await;
    proxy.delay(Duration::from_millis(100));
    let address = format!("{}:{}", options.get_host(), options.get_port());
    let url = url.replace(&address, &format!("127.0.0.1:{}", proxy.port));
    let limited = with(&url, "options=-c%20idle_in_transaction_session_timeout%3D350");
    let error = PostgresStore::connect(&limited).await.map(drop).unwrap_err();
    assert!(error.is_transient(), "{error:?}");
}
