//! Claims of a table whose triggers are slow or fail.

use std::time::Duration;

use idempotent_core::{Policy, Store, protocol::ClaimOutcome, runtime::Admission};
use sqlx::{Connection, Executor, PgConnection};

use crate::{
    cut_connections::proxied_store,
    helpers::{database, id, number, request, sql, store},
};
use test_support::{
    cuts::{digest, runtime},
    proxy::{Cut, Direction, Plan},
};

/// Makes each insert of a record slow, in one of these ways.
fn trigger(action: &str) -> String {
    format!(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {action}; \
         RETURN NEW; END $$;
         CREATE TRIGGER slow BEFORE INSERT ON idempotency_records \
         FOR EACH ROW EXECUTE FUNCTION slow()"
    )
}

/// The connection is lost while the server executes a claim, which is sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_sent_again_is_never_in_flight_because_of_its_first_sending() {
    let url = database().await;
    let store = proxied_store(&url).await;
    let granted = ClaimOutcome::Granted { attempt: 1 };
    for _ in 0..2 {
        store.count(None).await;
        assert_eq!(store.proxied.claim(&id(), &request()).await.unwrap(), granted);
    }
    let [to_server, _] = store.counted().await;
    sql(&url, trigger("PERFORM pg_sleep(1)")).await;
    let (direction, outage) = (Direction::ToServer, false);
    store.count(Some(Plan { direction, after: to_server, cut: Cut::Fin, outage })).await;
    // The store sends the claim again, and so does the runtime.
    let begun = runtime(store.proxied.clone()).begin(id(), digest(), &Policy::DEFAULT).await;
    assert_eq!(store.proxy.cuts(), 1);
    match begun {
        Ok(admission) => assert!(matches!(admission, Admission::Proceed(_)), "{admission:?}"),
        Err(error) => assert!(error.is_transient(), "{error:?}"),
    }
}

/// A trigger on the table waits for something else than the record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_fails_in_a_trigger_is_not_in_flight() {
    for (action, cancels) in [("PERFORM pg_sleep(60)", true), ("LOCK TABLE audit", false)] {
        let (store, url) = store().await;
        sql(&url, format!("CREATE TABLE audit (n int); {}", trigger(action))).await;
        let mut other = PgConnection::connect(&url).await.unwrap();
        other.execute("BEGIN; LOCK TABLE audit").await.unwrap();
        let claims = store.clone();
        let claimed = tokio::spawn(async move { claims.claim(&id(), &request()).await });
        let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event = 'PgSleep'";
        while cancels && number(&url, cancel).await == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let error = claimed.await.unwrap().expect_err(action);
        assert!(error.is_transient(), "{action}: {error:?}");
    }
}
