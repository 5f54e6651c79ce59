//! What lists, decisions and histories do on the server.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, RecordId, Store,
    history::Kind,
    protocol::{Fence, ListedState, RecordFilter, Removal, Resolution, ResolveOutcome, StoreFacts},
    store::Administration,
};
use idempotent_postgres::{PostgresStore, internals::batched_postgres};
use test_support::decision;
use tokio::task::JoinSet;

use crate::helpers::{database, id, number, request, sql, store};

const OTHERS: i64 = 20_000;
const FEW_PAGES: i64 = 100;

fn administration(store: &PostgresStore) -> &dyn Administration {
    store.administration().unwrap()
}

/// A key that is held.
async fn held(store: &PostgresStore) -> Lease {
    let (id, claim) = (id(), request());
    store.claim(&id, &claim).await.unwrap();
    let lease = Lease { id, owner: claim.owner };
    assert_eq!(store.abandon(&lease, Abandoned::Hold).await.unwrap(), Fence::Passed);
    lease
}

async fn completed(store: &PostgresStore) -> Lease {
    let (id, claim) = (id(), request());
    store.claim(&id, &claim).await.unwrap();
    let lease = Lease { id, owner: claim.owner };
    let recording = Bytes::from_static(b"done");
    assert_eq!(store.complete(&lease, &recording).await.unwrap(), Fence::Passed);
    lease
}

/// Adds completed records.
async fn add_others(url: &str) {
    let others = format!(
        "INSERT INTO idempotency_records (id, fingerprint, owner, attempt, lease, lease_until, \
         first_seen, expires_at, state, abandoned, recording) \
         SELECT sha256(int8send(n)), decode(repeat('07', 36), 'hex'), \
         decode(repeat('08', 16), 'hex'), 1, 1, 1, n, 9e15, 2, 0, 'done' \
         FROM generate_series(1::bigint, {OTHERS}) AS n"
    );
    sql(url, others).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watched_list_and_a_search_read_no_other_records() {
    for parts in [0, 4] {
        let url = database().await;
        sql(&url, "CREATE EXTENSION pg_stat_statements").await;
        let options = PostgresStore::options().partitions(parts);
        let store = options.connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        let leases = [held(&store).await, held(&store).await, held(&store).await];
        // The session keeps the plan that it makes on a table without others.
        for _ in 0..10 {
            administration(&store).watched(&RecordFilter::default(), None, 50).await.unwrap();
            administration(&store).find(&leases[0].id, &leases[0].id, 2).await.unwrap();
        }
        add_others(&url).await;
        let pages = "SELECT sum(shared_blks_hit + shared_blks_read)::bigint \
            FROM pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid \
            WHERE d.datname = current_database() AND query ~ '^SELECT .* history'";
        for filter in [RecordFilter::default(), RecordFilter::of_state(ListedState::Held)] {
            let before = number(&url, pages).await;
            let page = administration(&store).watched(&filter, None, 50).await.unwrap();
            assert_eq!(page.records.len(), 3);
            let found = administration(&store).find(&leases[0].id, &leases[0].id, 2).await.unwrap();
            assert_eq!(found.len(), 1);
            let read = number(&url, pages).await - before;
            println!("{read} pages of a table with {parts} partitions");
            assert!(read < FEW_PAGES, "{read}");
        }
    }
}

#[tokio::test]
async fn completions_of_records_that_are_not_watched_write_no_entry_of_the_watch_index() {
    let (store, url) = store().await;
    for _ in 0..50 {
        completed(&store).await;
    }
    let pages = "SELECT pg_relation_size('idempotency_records_watch') / 8192";
    // The page that describes the index.
    assert_eq!(number(&url, pages).await, 1);
    held(&store).await;
    assert_eq!(number(&url, pages).await, 2);
}

#[tokio::test]
async fn a_decision_that_cannot_be_logged_changes_nothing() {
    let (store, url) = store().await;
    let (held, done) = (held(&store).await, completed(&store).await);
    let before = [store.look_up(&held.id).await, store.look_up(&done.id).await];
    let before = before.map(|found| found.unwrap().unwrap().record);
    sql(
        &url,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'refused'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON idempotency_records_audit \
         FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    .await;
    let resolutions = [Resolution::Release, Resolution::Complete(Bytes::from_static(b"known"))];
    let removal = Removal::of_completed(done.owner);
    for resolution in &resolutions {
        let audit = decision(&held.id);
        store.resolve(&held.id, &held.owner, resolution, &audit).await.unwrap_err();
    }
    administration(&store).remove(&done.id, &removal, &decision(&done.id)).await.unwrap_err();
    let after = [store.look_up(&held.id).await, store.look_up(&done.id).await];
    assert_eq!(after.map(|found| found.unwrap().unwrap().record), before);
    sql(&url, "DROP TRIGGER refuse ON idempotency_records_audit").await;
    let resolved = store.resolve(&held.id, &held.owner, &resolutions[0], &decision(&held.id)).await;
    assert_eq!(resolved.unwrap(), ResolveOutcome::Resolved);
    assert!(administration(&store).remove(&done.id, &removal, &decision(&done.id)).await.unwrap());
    assert_eq!(administration(&store).audit(None, 10).await.unwrap().entries.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_write_histories() {
    let (store, _) = store().await;
    let store = batched_postgres(store);
    let work = (0..64).map(|_| {
        let store = store.clone();
        async move { completed(&store).await }
    });
    for lease in work.collect::<JoinSet<_>>().join_all().await {
        // A repeated completion adds nothing.
        let again = store.complete(&lease, &Bytes::from_static(b"again")).await.unwrap();
        assert_eq!(again, Fence::Passed);
        let found = store.look_up(&lease.id).await.unwrap().unwrap().record;
        let entries: Vec<_> = found.history.entries().collect();
        let kinds: Vec<_> = entries.iter().map(|entry| entry.kind).collect();
        assert_eq!(kinds, [Kind::Claimed, Kind::Completed]);
        assert_eq!(entries[0].at, found.first_seen);
    }
}

#[tokio::test]
async fn records_are_estimated_and_watched_ones_counted() {
    for parts in [0, 4] {
        let url = database().await;
        let store = PostgresStore::options().partitions(parts).connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        let oldest = held(&store).await;
        let first_seen = store.look_up(&oldest.id).await.unwrap().unwrap().record.first_seen;
        held(&store).await;
        let hold = request().with_abandoned(Abandoned::Hold);
        store.claim(&id(), &hold).await.unwrap();
        store.claim(&id(), &hold.with_lease(Duration::ZERO)).await.unwrap();
        completed(&store).await;
        let count = administration(&store).count().await.unwrap();
        assert_eq!((count.records, count.held, count.in_flight, count.is_exact), (5, 3, 1, true));
        add_others(&url).await;
        // The server has not analyzed the table yet.
        let count = administration(&store).count().await.unwrap();
        assert!(count.records.abs_diff(20_005) < 5_000 && !count.is_exact, "{count:?}");
        sql(&url, "ANALYZE idempotency_records").await;
        let count = administration(&store).count().await.unwrap();
        assert_eq!((count.held, count.in_flight, count.is_exact), (3, 1, false));
        assert_eq!(count.oldest_held, Some(first_seen));
        assert!(count.records.abs_diff(20_005) < 100, "{count:?}");
    }
}

/// The error of a list names the record that cannot be read.
#[tokio::test]
async fn a_damaged_record_is_named() {
    let (store, url) = store().await;
    let lease = held(&store).await;
    for damage in ["history = 'x'", "state = 9", "operation = repeat('x', 300)"] {
        sql(&url, format!("UPDATE idempotency_records SET {damage}")).await;
        let error =
            administration(&store).scan(&RecordFilter::default(), None, 10).await.unwrap_err();
        let source = error.source().unwrap().to_string();
        assert!(error.is_unreadable(), "{error:?}");
        assert!(source.contains(&lease.id.short().to_string()), "{source}");
        sql(&url, "UPDATE idempotency_records SET history = '', state = 3, operation = ''").await;
    }
}

/// A filter that no record of a part matches.
#[tokio::test]
async fn a_scan_reads_a_part_of_the_table_for_each_page() {
    let (store, url) = store().await;
    add_others(&url).await;
    let lease = completed(&store).await;
    let owner = store.look_up(&lease.id).await.unwrap().unwrap().record.owner;
    let set = "UPDATE idempotency_records SET operation = 'rare' WHERE lease_until > 1";
    sql(&url, set).await;
    let operation = idempotent_core::ShortText::new("rare").unwrap();
    let mut filter = RecordFilter::default();
    filter.operation = Some(operation);
    let (mut pages, mut after, mut found) = (0, None, Vec::<(RecordId, _)>::new());
    loop {
        let page = administration(&store).scan(&filter, after.as_ref(), 50).await.unwrap();
        pages += 1;
        found.extend(page.records.into_iter().map(|listed| (listed.id, listed.record.owner)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, [(lease.id, owner)]);
    assert_eq!(pages, OTHERS / 2_000 + 1);
}

#[tokio::test]
async fn a_table_with_many_dead_rows_is_found() {
    for parts in [0, 4] {
        let url = database().await;
        let store = PostgresStore::options().partitions(parts).connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        let before = store.look_up(&held(&store).await.id).await.unwrap().unwrap().at;
        let facts = administration(&store).measure().await.unwrap();
        assert!(facts.at >= before && facts.server.starts_with("PostgreSQL 1"), "{facts:?}");
        assert!(facts.sizes.iter().all(|size| size.bytes > 0), "{facts:?}");
        let is_about_rows = |facts: &StoreFacts| {
            facts.findings.iter().any(|finding| finding.found.contains("dead rows"))
        };
        assert!(!is_about_rows(&facts), "{facts:?}");
        add_others(&url).await;
        let rest = "DELETE FROM idempotency_records WHERE state = 2; ANALYZE idempotency_records";
        for statement in rest.split("; ") {
            sql(&url, statement).await;
        }
        // Autovacuum may have removed them already.
        let dead = "SELECT sum(n_dead_tup)::bigint FROM pg_stat_user_tables \
                    WHERE relname ~ '^idempotency_records'";
        let facts = administration(&store).measure().await.unwrap();
        assert_eq!(is_about_rows(&facts), number(&url, dead).await > 10_000, "{facts:?}");
    }
}
