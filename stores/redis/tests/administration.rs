//! Watch lists, scans, and the log of operators' decisions.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::join_all;
use idempotent_core::{
    Abandoned, Lease, RecordId,
    protocol::{
        Audited, Fence, ListedRecord, Note, PagePosition, RecordFilter, Removal, Renewal,
        Resolution, ResolveOutcome,
    },
    store::{Administration, Store},
};
use idempotent_redis::{RedisStore, internals::encode_redis_claim};

use super::helpers::{GRANTED, key, lease, open_store, request};
use test_support::{
    administering::assert_an_old_list_ends,
    decision,
    servers::redis::{IN_MEMORY, Server},
};

mod clusters;
mod damage;
mod outages;

const WATCHED: &str = "idempotency:watched";
const LOG: &str = "idempotency:log";

async fn claimed(store: &RedisStore, id: RecordId, policy: Abandoned) -> Lease {
    let claim = request().with_abandoned(policy);
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    lease(id, &claim)
}

async fn held(store: &RedisStore, id: RecordId) -> Lease {
    let lease = claimed(store, id, Abandoned::Retry).await;
    assert_eq!(store.abandon(&lease, Abandoned::Hold).await.unwrap(), Fence::Passed);
    lease
}

async fn remove(store: &RedisStore, lease: &Lease) {
    let removal = Removal::of_any(lease.owner);
    assert!(store.remove(&lease.id, &removal, &decision(&lease.id)).await.unwrap());
}

/// All ids of the watch list, in pages of this size.
async fn watched(store: &RedisStore, limit: u32) -> Vec<RecordId> {
    let (mut ids, mut after): (_, Option<PagePosition>) = (Vec::new(), None);
    loop {
        let page = store.watched(&RecordFilter::default(), after.as_ref(), limit).await.unwrap();
        ids.extend(page.records.iter().map(|listed| listed.id));
        after = page.next;
        if after.is_none() {
            return ids;
        }
    }
}

async fn scanned(store: &RedisStore, limit: u32) -> Vec<ListedRecord> {
    let (mut records, mut after): (_, Option<PagePosition>) = (Vec::new(), None);
    loop {
        let page = store.scan(&RecordFilter::default(), after.as_ref(), limit).await.unwrap();
        assert!(page.records.len() <= usize::try_from(limit).unwrap());
        records.extend(page.records);
        after = page.next;
        if after.is_none() {
            return records;
        }
    }
}

async fn logged(store: &RedisStore, limit: u32) -> Vec<Audited> {
    let (mut entries, mut after): (_, Option<PagePosition>) = (Vec::new(), None);
    loop {
        let page = store.audit(after.as_ref(), limit).await.unwrap();
        entries.extend(page.entries);
        after = page.next;
        if after.is_none() {
            return entries;
        }
    }
}

fn sorted(mut ids: Vec<RecordId>) -> Vec<RecordId> {
    ids.sort();
    ids
}

/// The entries of the watch list, without their times.
fn members(server: &Server) -> u64 {
    server.command(&format!("ZCARD {WATCHED}"))
}

/// Fails if a list of old records reads all young ones too.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_old_records_ends_at_the_first_young_one() {
    let server = Server::start(IN_MEMORY);
    let store = open_store(&server.url()).await;
    for _ in 0..13 {
        join_all((0..80).map(|_| claimed(&store, key(), Abandoned::Hold))).await;
    }
    assert_an_old_list_ends(&store, &[]).await;
}

/// Fails if a record is changed although the entry that belongs to the change cannot be written.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_and_its_entry_are_written_together() {
    let server = Server::start(IN_MEMORY);
    let store = open_store(&server.url()).await;
    let working = claimed(&store, key(), Abandoned::Retry).await;
    let held = held(&store, key()).await;
    let _: () = server.command(&format!("SET {LOG} text"));
    let before = store.look_up(&held.id).await.unwrap().unwrap().record;
    for resolution in [Resolution::Release, Resolution::Complete(Bytes::from_static(b"done"))] {
        let audit = decision(&held.id);
        store.resolve(&held.id, &held.owner, &resolution, &audit).await.unwrap_err();
    }
    let removal = Removal::of_any(held.owner);
    store.remove(&held.id, &removal, &decision(&held.id)).await.unwrap_err();
    assert_eq!(store.look_up(&held.id).await.unwrap().unwrap().record, before);
    assert_eq!(watched(&store, 10).await, [held.id]);

    let _: () = server.command(&format!("DEL {WATCHED}"));
    let _: () = server.command(&format!("SET {WATCHED} text"));
    let before = store.look_up(&working.id).await.unwrap().unwrap().record;
    let id = key();
    store.claim(&id, &request().with_abandoned(Abandoned::Hold)).await.unwrap_err();
    assert_eq!(store.look_up(&id).await.unwrap(), None);
    store.abandon(&working, Abandoned::Hold).await.unwrap_err();
    store.note(&working, &Note::hold()).await.unwrap_err();
    assert_eq!(store.look_up(&working.id).await.unwrap().unwrap().record, before);
}

/// Fails if a key can be claimed under `hold` without being in the list: its process may end at any
/// time, and nobody would find the key.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_holds_is_watched_from_its_claim_to_its_end() {
    let server = Server::start(IN_MEMORY);
    let store = open_store(&server.url()).await;
    let dying = open_store(&server.url()).await;
    let claim = request().with_abandoned(Abandoned::Hold).with_lease(Duration::from_millis(1));
    let id = key();
    assert_eq!(dying.claim(&id, &claim).await.unwrap(), GRANTED);
    drop(dying);
    assert_eq!(watched(&store, 10).await, [id]);
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(store.count().await.unwrap().held, 1);
    let resolution = Resolution::Complete(Bytes::from_static(b"known"));
    let resolved = store.resolve(&id, &claim.owner, &resolution, &decision(&id)).await.unwrap();
    assert_eq!(resolved, ResolveOutcome::Resolved);
    assert_eq!((members(&server), watched(&store, 10).await), (0, vec![]));

    let recordings = [9, 64 * 1024].map(|bytes| Bytes::from(vec![7; bytes]));
    for recording in &recordings {
        let holds = claimed(&store, key(), Abandoned::Hold).await;
        let renewed = claimed(&store, key(), Abandoned::Retry).await;
        store.renew(&[Renewal::new(renewed, Duration::from_secs(30))]).await.unwrap();
        assert_eq!(members(&server), 2);
        for lease in [holds, renewed] {
            assert_eq!(store.complete(&lease, recording).await.unwrap(), Fence::Passed);
        }
        assert_eq!(members(&server), 0);
    }
    let released = claimed(&store, key(), Abandoned::Hold).await;
    assert_eq!(store.release(&released).await.unwrap(), Fence::Passed);
    let removed = held(&store, key()).await;
    remove(&store, &removed).await;
    assert_eq!(members(&server), 0);
}

/// Fails if a list shows or keeps an entry without an open record, if it drops an entry whose
/// record may be written at once, or if it loses a live one.
#[tokio::test(flavor = "multi_thread")]
async fn stale_entries_are_dropped_and_live_ones_never() {
    let server = Server::start(IN_MEMORY);
    let store = open_store(&server.url()).await;
    let mut connection = server.client().get_connection().unwrap();
    let mut run = |command: &str, before: &[&str], id: RecordId| {
        let mut command = redis::cmd(command);
        command.arg(before).arg(id.as_bytes()).exec(&mut connection).unwrap();
    };
    let now: (u64, u64) = server.command("TIME");
    let (old, recent) = ((now.0 - 3_700) * 1_000, (now.0 - 3_500) * 1_000);
    let live = held(&store, key()).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let moved = held(&store, key()).await;
    let done = claimed(&store, key(), Abandoned::Retry).await;
    store.complete(&done, &Bytes::new()).await.unwrap();
    let (gone, expected) = (key(), key());
    for (id, time) in [(moved.id, old), (done.id, old), (gone, old), (expected, recent)] {
        run("ZADD", &[WATCHED, &time.to_string()], id);
    }
    assert_eq!(sorted(watched(&store, 10).await), sorted(vec![live.id, moved.id]));
    // Those with an open record, and the one whose record may follow.
    assert_eq!(members(&server), 3);
    let count = store.count().await.unwrap();
    assert_eq!((count.held, count.in_flight), (2, 0));
    // Its time was corrected.
    assert_eq!(watched(&store, 1).await, [live.id, moved.id]);

    // A damaged record is neither shown nor dropped.
    let damaged = key();
    let path = [b"idempotency:".as_slice(), damaged.as_bytes()].concat();
    redis::cmd("SET").arg(path).arg("damaged").exec(&mut connection).unwrap();
    redis::cmd("ZADD").arg(WATCHED).arg(old).arg(damaged.as_bytes()).exec(&mut connection).unwrap();
    assert_eq!(watched(&store, 10).await.len(), 2);
    assert_eq!(members(&server), 4);

    // Keys are held and listed at the same time.
    let listing = tokio::spawn({
        let store = store.clone();
        async move {
            loop {
                watched(&store, 3).await;
            }
        }
    });
    let mut ids = vec![live.id, moved.id];
    for _ in 0..200 {
        ids.push(claimed(&store, key(), Abandoned::Hold).await.id);
    }
    listing.abort();
    assert_eq!(sorted(watched(&store, 100).await), sorted(ids));
}

/// Fails if a page of the watch list reads anything but its own records.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_the_watch_list_costs_the_same_beside_many_records() {
    let server = Server::start(IN_MEMORY);
    let store = open_store(&server.url()).await;
    let fill = "for i = 1, 100000 do redis.call('SET', KEYS[1] .. string.format('%032d', i), \
                ARGV[1], 'PX', 100000000) end";
    let mut connection = server.client().get_connection().unwrap();
    let () = redis::cmd("EVAL")
        .arg(fill)
        .arg(1)
        .arg("idempotency:")
        .arg(encode_redis_claim(&request()))
        .query(&mut connection)
        .unwrap();
    for _ in 0..500 {
        held(&store, key()).await;
    }
    watched(&store, 500).await;
    let _: () = server.command("CONFIG RESETSTAT");
    let began = Instant::now();
    let page = store.watched(&RecordFilter::default(), None, 50).await.unwrap();
    println!("a page of 50 of 500 watched records beside 100,000 others: {:?}", began.elapsed());
    assert_eq!(page.records.len(), 50);
    let calls = |command| server.calls(command);
    assert_eq!((calls("zrange"), calls("evalsha"), calls("getrange")), (1, 64, 64));
    assert_eq!((calls("scan"), calls("get"), calls("eval"), calls("keys")), (0, 0, 0, 0));
    let began = Instant::now();
    let count = store.count().await.unwrap();
    println!("a count: {:?}", began.elapsed());
    assert_eq!((count.held, count.in_flight, count.is_exact), (500, 0, false));
    assert!(count.records >= 100_500, "{count:?}");
    let began = Instant::now();
    let (first, last) = RecordId::range(&["30".repeat(29), "3132".to_owned()].concat()).unwrap();
    let found = store.find(&first, &last, 200).await.unwrap();
    println!("a search: {:?}", began.elapsed());
    // 120 to 129.
    assert_eq!(found.len(), 10);
}

/// Fails if a scan misses a record while the server resizes its table.
#[tokio::test(flavor = "multi_thread")]
async fn a_scan_finds_all_records_while_others_come_and_go() {
    let server = Server::start(IN_MEMORY);
    let store = open_store(&server.url()).await;
    let mut ids = Vec::new();
    for _ in 0..300 {
        ids.push(claimed(&store, key(), Abandoned::Retry).await.id);
    }
    let (mut found, mut after): (BTreeSet<_>, Option<PagePosition>) = (BTreeSet::new(), None);
    let change = "for i = 1, 10000 do redis.call(ARGV[1], 'other:' .. i, unpack(ARGV, 2)) end";
    let mut connection = server.client().get_connection().unwrap();
    for page_number in 0.. {
        let page = store.scan(&RecordFilter::default(), after.as_ref(), 3).await.unwrap();
        found.extend(page.records.iter().map(|listed| listed.id));
        after = page.next;
        if after.is_none() {
            break;
        }
        let args = match page_number % 20 {
            0 => &["SET", "value"][..],
            10 => &["DEL"],
            _ => continue,
        };
        redis::cmd("EVAL").arg(change).arg(0).arg(args).exec(&mut connection).unwrap();
    }
    assert!(ids.iter().all(|id| found.contains(id)), "{} of {}", found.len(), ids.len());
}
