//! Settings of the role that an operator has changed.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use idempotent_core::{
    Lease, Store,
    protocol::{Claim, ClaimOutcome, Fence, RenewOutcome, Renewal},
    store::{Transaction, TransactionClaim, postgres::PostgresStore},
};
use sqlx::{AssertSqlSafe, PgConnection, PgPool};

use super::{id, number, request, sql};
use test_support::servers::{pgbouncer::PgBouncer, postgres::Postgres};

/// A server whose role has these settings, and every kind of connection to it.
async fn stores(
    settings: &[(&str, &str)],
) -> (Vec<(&'static str, PostgresStore)>, (Postgres, PgBouncer)) {
    let server = Postgres::start();
    let url = server.url("postgres");
    PostgresStore::connect(&url).await.unwrap().migrate().await.unwrap();
    for (name, value) in settings {
        sql(&url, format!("ALTER ROLE postgres SET {name} = '{value}'")).await;
    }
    let pooler = PgBouncer::before(server.port);
    let stores = vec![
        ("own", PostgresStore::connect(&url).await.unwrap()),
        (
            "whole",
            PostgresStore::connect(&format!("{url}?statement-cache-capacity=0")).await.unwrap(),
        ),
        ("pooler", PostgresStore::connect(&pooler.url("postgres")).await.unwrap()),
        ("shared", PostgresStore::from_pool(PgPool::connect(&url).await.unwrap()).await.unwrap()),
    ];
    (stores, (server, pooler))
}

async fn claim_within(
    store: &PostgresStore,
    lease: &Lease,
    claim: &Claim,
) -> Result<Box<dyn Transaction>, ClaimOutcome> {
    match store.transactions().unwrap().claim(&lease.id, claim, WAIT_LIMIT).await.unwrap() {
        TransactionClaim::Granted { transaction, .. } => Ok(transaction),
        TransactionClaim::Rejected(outcome) => Err(outcome),
    }
}

/// The settings that a handler finds.
async fn set(transaction: &mut Box<dyn Transaction>, setting: &str) -> String {
    let connection: &mut PgConnection = transaction.connection_mut().downcast_mut().unwrap();
    let text = AssertSqlSafe(format!("SELECT current_setting('{setting}')"));
    sqlx::query_scalar(text).persistent(false).fetch_one(connection).await.unwrap()
}

fn new() -> (Lease, Claim) {
    let claim = request();
    (Lease { id: id(), owner: claim.owner }, claim)
}

#[tokio::test]
async fn a_role_whose_rows_show_bytes_in_escape_form_has_replays() {
    let (stores, _servers) = stores(&[("bytea_output", "escape")]).await;
    let response = Bytes::from_static(b"\x00\x01\\done\xff");
    for (name, store) in stores {
        let ((lease, claim), (within, claim_in)) = (new(), new());
        assert_eq!(
            store.claim(&lease.id, &claim).await.unwrap(),
            ClaimOutcome::Granted { attempt: 1 },
            "{name}"
        );
        let renewal = Renewal::new(lease, claim.lease);
        assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed], "{name}");
        assert_eq!(store.complete(&lease, &response).await.unwrap(), Fence::Passed, "{name}");
        let mut transaction = claim_within(&store, &within, &claim_in).await.unwrap();
        assert_eq!(
            set(&mut transaction, "bytea_output").await,
            "escape",
            "{name}: the handler's setting is another one"
        );
        assert_eq!(
            transaction.complete_and_commit(&within, &response).await.unwrap(),
            Fence::Passed,
            "{name}"
        );
        for lease in [lease, within] {
            let found = ClaimOutcome::Completed(response.clone());
            assert_eq!(store.claim(&lease.id, &request()).await.unwrap(), found, "{name}");
            assert_eq!(claim_within(&store, &lease, &request()).await.err(), Some(found), "{name}");
            assert!(store.look_up(&lease.id).await.unwrap().is_some(), "{name}");
        }
    }
}

const WAITS: [(&str, &str); 2] = [("statement_timeout", "2s"), ("lock_timeout", "1500ms")];
/// How long a claim waits for another transaction.
const WAIT_LIMIT: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_claim_waits_for_longer_than_the_roles_timeouts() {
    let (stores, _servers) = stores(&WAITS).await;
    let waits = stores.into_iter().map(|(name, store)| async move {
        let (lease, claim) = new();
        let mut transaction = claim_within(&store, &lease, &claim).await.unwrap();
        for (setting, value) in WAITS {
            assert_eq!(
                set(&mut transaction, setting).await,
                value,
                "{name}: the handler's setting is another one"
            );
        }
        let started = Instant::now();
        let outcome = claim_within(&store, &lease, &request()).await.err();
        assert!(matches!(outcome, Some(ClaimOutcome::InFlight { .. })), "{name}: {outcome:?}");
        assert!(started.elapsed() >= WAIT_LIMIT, "{name}: it waited {:?}", started.elapsed());
        transaction.roll_back().await;
    });
    join_all(waits).await;
}

/// Like a `statement_timeout` of an application's session that does not have the store's settings.
#[tokio::test]
async fn a_claim_whose_wait_for_a_record_the_server_ends_is_in_flight() {
    let (stores, (server, _pooler)) = stores(&[]).await;
    let cancel = "SELECT count(*) FROM pg_stat_activity \
                  WHERE CASE wait_event_type WHEN 'Lock' THEN \
                  pg_cancel_backend(pid) ELSE false END";
    for (name, store) in stores {
        let (lease, claim) = new();
        let transaction = claim_within(&store, &lease, &claim).await.unwrap();
        let (mut cancelled, url) = (0, server.url("postgres"));
        while cancelled < 5 {
            let again = request();
            let mut outcome = store.claim(&lease.id, &again);
            let outcome = loop {
                tokio::select! {
                    outcome = &mut outcome => break outcome.unwrap(),
                    found = number(&url, cancel) => cancelled += found,
                }
            };
            assert!(matches!(outcome, ClaimOutcome::InFlight { .. }), "{name}: {outcome:?}");
        }
        transaction.roll_back().await;
    }
}
