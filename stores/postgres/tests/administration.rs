//! What lists, decisions and histories do on the server.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Abandoned, RecordId, Store,
    history::Kind,
    protocol::{Fence, ListedState, RecordFilter, StoreFacts},
};
use idempotent_postgres::{PostgresStore, internals::batched_postgres};
use test_support::administering::{
    administration, assert_an_old_list_ends, assert_damaged_rows_are_named,
    assert_decisions_are_logged, assert_decisions_fail_unlogged,
    assert_filters_select_damaged_rows, assert_named_beside_others, completed, held, id, request,
};
use tokio::task::JoinSet;

use crate::helpers::{database, number, sql, store};

const OTHERS: i64 = 20_000;
const FEW_PAGES: i64 = 100;

/// Executes a statement about the record `ID`.
async fn sql_on(url: &str, id: &RecordId, text: &str) {
    sql(url, text.replace("ID", &format!("decode('{id}', 'hex')"))).await;
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
    sql(
        &url,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'refused'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON idempotency_records_audit \
         FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    .await;
    assert_decisions_fail_unlogged(&store, &held, &done).await;
    sql(&url, "DROP TRIGGER refuse ON idempotency_records_audit").await;
    assert_decisions_are_logged(&store, &held, &done).await;
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

#[tokio::test]
async fn a_damaged_record_is_named_beside_the_others() {
    let (store, url) = store().await;
    let sql = async |id: &RecordId, text: &str| sql_on(&url, id, text).await;
    assert_damaged_rows_are_named(&store, sql).await;
    // The server has no constraints for these.
    for damage in ["state = 9", "operation = repeat('x', 300)", "owner = ''"] {
        self::sql(&url, "DELETE FROM idempotency_records").await;
        let (damaged, other) = (held(&store).await, held(&store).await);
        let set = format!("UPDATE idempotency_records SET {damage} WHERE id = ID");
        sql_on(&url, &damaged.id, &set).await;
        assert_named_beside_others(&store, &damaged.id, &[other.id]).await;
    }
}

#[tokio::test]
async fn a_damaged_record_is_named_if_a_filter_may_select_it() {
    let (store, url) = store().await;
    let sql = async |id: &RecordId, text: &str| sql_on(&url, id, text).await;
    assert_filters_select_damaged_rows(&store, sql).await;
}

#[tokio::test]
async fn a_list_of_old_records_ends_at_the_first_young_one() {
    let (store, url) = store().await;
    let old = held(&store).await;
    sql(&url, "UPDATE idempotency_records SET first_seen = 1, watch = 1").await;
    let insert = "INSERT INTO idempotency_records (id, fingerprint, owner, attempt, lease, \
        lease_until, first_seen, expires_at, state, abandoned, watch) \
        SELECT sha256(int8send(n)), decode(repeat('07', 36), 'hex'), \
        decode(repeat('08', 16), 'hex'), 1, 1, 1, now, 9e15, 3, 1, now \
        FROM generate_series(1::bigint, 2001) AS n, \
        (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) AS clock";
    sql(&url, insert).await;
    assert_an_old_list_ends(&store, &[old.id]).await;
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
