//! Settings that an operator has changed for the role.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use idempotent_core::{
    Lease, Store,
    protocol::{Claim, ClaimOutcome, Fence, Rejection, RenewOutcome, Renewal},
    store::{Transaction, TransactionClaim},
};
use idempotent_postgres::PostgresStore;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};

use crate::{
    helpers::{id, number, request, sql},
    transaction_claims::claim_as_before,
};
use test_support::servers::{pgbouncer::PgBouncer, postgres::Postgres};

/// A server whose role has these settings, and a store on every kind of connection to it.
async fn stores(
    settings: &[(&str, &str)],
) -> (Vec<(&'static str, PostgresStore)>, (Postgres, PgBouncer)) {
    let server = Postgres::start();
    let url = server.url("postgres");
    PostgresStore::connect(&url).await.unwrap().migrate().await.unwrap();
    for (name, value) in settings {
        sql(&url, format!("ALTER ROLE postgres SET {name} = '{value}'")).await;
    }
    let pooler = PgBouncer::in_front_of(server.port);
    let stores = vec![
        ("own", PostgresStore::connect(&url).await.unwrap()),
        (
            "no statement cache",
            PostgresStore::connect(&format!("{url}?statement-cache-capacity=0")).await.unwrap(),
        ),
        ("pooler", PostgresStore::connect(&pooler.url("postgres")).await.unwrap()),
        ("shared", PostgresStore::from_pool(PgPool::connect(&url).await.unwrap()).await.unwrap()),
    ];
    (stores, (server, pooler))
}

async fn claim_in_transaction(
    store: &PostgresStore,
    lease: &Lease,
    claim: &Claim,
) -> Result<Box<dyn Transaction>, Rejection> {
    match store.transactions().unwrap().claim(&lease.id, claim, WAIT_LIMIT).await.unwrap() {
        TransactionClaim::Granted { transaction, .. } => Ok(transaction),
        TransactionClaim::Rejected(rejection) => Err(rejection),
    }
}

/// The value of a setting that a handler finds.
async fn setting_in(transaction: &mut Box<dyn Transaction>, setting: &str) -> String {
    let connection: &mut PgConnection = transaction.connection_mut().downcast_mut().unwrap();
    let text = AssertSqlSafe(format!("SELECT current_setting('{setting}')"));
    sqlx::query_scalar(text).persistent(false).fetch_one(connection).await.unwrap()
}

fn new_claim() -> (Lease, Claim) {
    let claim = request();
    (Lease { id: id(), owner: claim.owner }, claim)
}

#[tokio::test]
async fn replays_work_with_bytea_output_escape() {
    let (stores, _servers) = stores(&[("bytea_output", "escape")]).await;
    let response = Bytes::from_static(b"\x00\x01\\done\xff");
    for (name, store) in stores {
        let ((lease, claim), (tx_lease, tx_claim)) = (new_claim(), new_claim());
        assert_eq!(
            store.claim(&lease.id, &claim).await.unwrap(),
            ClaimOutcome::Granted { attempt: 1 },
            "{name}"
        );
        let renewal = Renewal::new(lease, claim.lease);
        assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewOutcome::Renewed], "{name}");
        assert_eq!(store.complete(&lease, &response).await.unwrap(), Fence::Passed, "{name}");
        let mut transaction = claim_in_transaction(&store, &tx_lease, &tx_claim).await.unwrap();
        assert_eq!(
            setting_in(&mut transaction, "bytea_output").await,
            "escape",
            "{name}: the handler's setting was changed"
        );
        assert_eq!(
            transaction.complete_and_commit(&tx_lease, &response).await.unwrap(),
            Fence::Passed,
            "{name}"
        );
        for lease in [lease, tx_lease] {
            let found = Rejection::Completed(response.clone());
            assert_eq!(
                store.claim(&lease.id, &request()).await.unwrap(),
                ClaimOutcome::Rejected(found.clone()),
                "{name}"
            );
            assert_eq!(
                claim_in_transaction(&store, &lease, &request()).await.err(),
                Some(found),
                "{name}"
            );
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
        let (lease, claim) = new_claim();
        let mut transaction = claim_in_transaction(&store, &lease, &claim).await.unwrap();
        for (setting, value) in WAITS {
            assert_eq!(
                setting_in(&mut transaction, setting).await,
                value,
                "{name}: the handler's setting was changed"
            );
        }
        let started = Instant::now();
        let rejection = claim_in_transaction(&store, &lease, &request()).await.err();
        assert!(matches!(rejection, Some(Rejection::InFlight { .. })), "{name}: {rejection:?}");
        assert!(
            started.elapsed() >= WAIT_LIMIT,
            "{name}: the claim waited only {:?}",
            started.elapsed()
        );
        transaction.roll_back().await;
    });
    join_all(waits).await;
}

/// A cancellation stands for a `statement_timeout` of an application's session, which does not have
/// the store's settings.
#[tokio::test]
async fn a_claim_that_the_server_cancels_while_it_waits_is_in_flight() {
    let (stores, (server, _pooler)) = stores(&[]).await;
    let cancel = "SELECT count(*) FROM pg_stat_activity \
                  WHERE CASE wait_event_type WHEN 'Lock' THEN \
                  pg_cancel_backend(pid) ELSE false END";
    for (name, store) in stores {
        let (lease, claim) = new_claim();
        let (mut cancelled, url) = (0, server.url("postgres"));
        // An uncommitted record, for which other claims wait.
        let mut inserting = PgConnection::connect(&url).await.unwrap();
        sqlx::raw_sql("BEGIN").execute(&mut inserting).await.unwrap();
        assert_eq!(claim_as_before(&mut inserting, &lease.id, &claim).await, 1);
        while cancelled < 5 {
            let again = request();
            let mut outcome = store.claim(&lease.id, &again);
            let outcome = loop {
                tokio::select! {
                    outcome = &mut outcome => break outcome.unwrap(),
                    found = number(&url, cancel) => cancelled += found,
                }
            };
            assert!(
                matches!(outcome, ClaimOutcome::Rejected(Rejection::InFlight { .. })),
                "{name}: {outcome:?}"
            );
        }
        inserting.close().await.unwrap();
    }
}
