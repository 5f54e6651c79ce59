//! Lists and logs of a cluster, which has one of each for each slot.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, RecordId,
    protocol::{AuditAction, Fence, Note, PagePosition, RecordFilter, Removal, Renewal},
    store::{Administration, Store},
};
use idempotent_redis::{RedisStore, internals::watch_list_of};

use super::{claimed, held, logged, remove, scanned, sorted, watched};
use crate::{
    helpers::{GRANTED, describe, key, open_store, open_with, request},
    moving_slots::{begin_move, migrate, move_keys, move_slot},
};
use test_support::{
    decision,
    servers::redis::{Cluster, Server},
};

/// An id whose key is in the slot of `a`.
fn in_one_slot() -> RecordId {
    let mut id = *key().as_bytes();
    id[..3].copy_from_slice(b"{a}");
    RecordId::from_bytes(id)
}

/// Fails if a page of a cluster is not in order or lacks a record: some slots have many, others
/// none, and all of one slot were claimed at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lists_of_a_cluster_are_those_of_all_slots() {
    let cluster = Cluster::start();
    let store = open_store(&cluster.url()).await;
    let mut connection = cluster.client().get_connection().unwrap();
    let mut leases = Vec::new();
    for at in 0..60 {
        leases.push(held(&store, if at < 40 { in_one_slot() } else { key() }).await);
    }
    let first_seen = store.look_up(&leases[0].id).await.unwrap().unwrap().record.first_seen;
    for lease in &leases[..40] {
        let (millis, id) = (first_seen.as_millis(), lease.id.as_bytes());
        let path = [b"idempotency:".as_slice(), id].concat();
        let set = redis::cmd("SETRANGE").arg(path).arg(67).arg(&millis.to_be_bytes()).clone();
        set.exec(&mut connection).unwrap();
        let list = watch_list_of(&store, &lease.id);
        redis::cmd("ZADD").arg(list).arg(millis).arg(id).exec(&mut connection).unwrap();
    }
    let all = sorted(leases.iter().map(|lease| lease.id).collect());
    for limit in [7, 100] {
        assert_eq!(sorted(watched(&store, limit).await), all, "pages of {limit}");
        let scanned = scanned(&store, limit).await.into_iter().map(|listed| listed.id);
        assert_eq!(scanned.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>(), all);
    }
    let began = Instant::now();
    let page = store.watched(&RecordFilter::default(), None, 50).await.unwrap();
    println!("a page of a cluster: {:?}", began.elapsed());
    let places = page.records.iter().map(|listed| (listed.record.first_seen, listed.id));
    assert!(page.records.len() >= 16 && places.is_sorted(), "{page:?}");
    assert_eq!(store.count().await.unwrap().held, 60);
    let (first, last) = RecordId::range("7b617d").unwrap();
    assert_eq!(store.find(&first, &last, 100).await.unwrap().len(), 40);

    for lease in &leases {
        remove(&store, lease).await;
    }
    for limit in [7, 1_000] {
        let entries = logged(&store, limit).await;
        let times = entries.iter().map(|audited| audited.at);
        assert!(times.rev().is_sorted(), "{entries:?}");
        let ids = entries.iter().map(|audited| audited.entry.id).collect();
        assert_eq!(sorted(ids), all, "pages of {limit}");
        assert!(entries.iter().all(|audited| audited.entry.action == AuditAction::Release));
    }
    assert_eq!(watched(&store, 100).await, []);
}

/// Fails if a key cannot be claimed, renewed or ended while its slot moves and its record and its
/// list are on two nodes; if the list lacks it afterwards; or if the slot cannot be moved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_watched_while_its_slot_moves() {
    let cluster = Cluster::start();
    let prefix = "{payments}";
    let store = open_with(RedisStore::options().key_prefix(prefix), &cluster.url()).await;
    store.check().await.unwrap();
    let slot: u16 = cluster.0[0].command(&format!("CLUSTER KEYSLOT {prefix}"));
    let count = |node: &Server| node.command::<u64>(&format!("CLUSTER COUNTKEYSINSLOT {slot}"));
    let (mut open, mut ending, mut working) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..14 {
        ending.push(claimed(&store, key(), Abandoned::Hold).await);
        working.push(claimed(&store, key(), Abandoned::Retry).await);
    }
    let from = cluster.0.iter().find(|node| count(node) > 0).unwrap();
    let to = cluster.0.iter().find(|node| count(node) == 0).unwrap();
    let [_, new_owner] = begin_move(slot, [from, to]);
    let watched_key = format!("{prefix}watched").into_bytes();
    let mut refused = 0;
    // The list is on the node that the slot leaves, and then on the other one.
    for keys in [vec![], vec![watched_key.clone()]] {
        if !keys.is_empty() {
            migrate([from, to], keys);
        }
        for _ in 0..3 {
            open.push(claimed(&store, key(), Abandoned::Hold).await);
            open.push(held(&store, key()).await);
            let noted = claimed(&store, key(), Abandoned::Retry).await;
            assert_eq!(store.note(&noted, &Note::hold()).await.unwrap(), Fence::Passed);
            open.push(noted);
            let working = working.pop().unwrap();
            let renewal = Renewal::new(working, Duration::from_secs(30));
            store.renew(&[renewal]).await.unwrap();
            assert_eq!(store.abandon(&working, Abandoned::Hold).await.unwrap(), Fence::Passed);
            open.push(working);
            let ended = ending.pop().unwrap();
            assert_eq!(store.complete(&ended, &Bytes::new()).await.unwrap(), Fence::Passed);
            let ended = ending.pop().unwrap();
            assert_eq!(store.release(&ended).await.unwrap(), Fence::Passed);
        }
        // A decision needs all keys on one node.
        let held = open.last().unwrap();
        let removal = Removal::of_any(held.owner);
        if let Err(error) = store.remove(&held.id, &removal, &decision(&held.id)).await {
            assert!(error.is_transient(), "{}", describe(&error));
            refused += 1;
        }
    }
    while move_keys(slot, [from, to]) > 0 {}
    for node in [to, from] {
        let _: () = node.command(&format!("CLUSTER SETSLOT {slot} NODE {new_owner}"));
    }
    assert_eq!(refused, 2);
    // The time of an entry that was written before its record is corrected by the list.
    let listed: BTreeSet<_> = watched(&store, 5).await.into_iter().collect();
    let listed: Vec<_> = listed.into_iter().collect();
    let expected = sorted(open.iter().chain(&ending).map(|lease| lease.id).collect());
    assert_eq!(listed, expected);
    for lease in open {
        remove(&store, &lease).await;
    }
}

/// Fails if a scan or a search misses a record because its slot moves between two pages from a node
/// that is read later to one that has been read, or if it never ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_finds_the_records_of_a_slot_that_is_moving() {
    let cluster = Cluster::start();
    let slot_of = |prefix: &str| cluster.0[0].command::<u16>(&format!("CLUSTER KEYSLOT {prefix}"));
    // The first node is read first, and the third one last.
    let prefixes = (0..).map(|number| format!("{{payments{number}}}"));
    let prefix = prefixes.into_iter().find(|prefix| slot_of(prefix) > 11_000).unwrap();
    let slot = slot_of(&prefix);
    let (to, from) = (&cluster.0[0], &cluster.0[2]);
    let store = open_with(RedisStore::options().key_prefix(&prefix), &cluster.url()).await;
    let mut ids = BTreeSet::new();
    for _ in 0..25 {
        ids.insert(claimed(&store, key(), Abandoned::Retry).await.id);
    }
    let filter = RecordFilter::default();
    let rest = async |mut found: BTreeSet<RecordId>, mut after: Option<PagePosition>| {
        for _ in 0..1_000 {
            let page = store.scan(&filter, after.as_ref(), 3).await.unwrap();
            found.extend(page.records.iter().map(|listed| listed.id));
            after = page.next;
            if after.is_none() {
                return found;
            }
        }
        panic!("the scan goes on and on");
    };
    // A part of the keys has moved, while the slot is moving.
    let page = store.scan(&filter, None, 3).await.unwrap();
    let found = page.records.iter().map(|listed| listed.id).collect();
    let [_, new_owner] = begin_move(slot, [from, to]);
    assert_eq!(move_keys(slot, [from, to]) + move_keys(slot, [from, to]), 20);
    assert_eq!(rest(found, page.next).await, ids);
    let (first, last) = (RecordId::from_bytes([0; 32]), RecordId::from_bytes([0xff; 32]));
    assert_eq!(store.find(&first, &last, 100).await.unwrap().len(), 25);
    while move_keys(slot, [from, to]) > 0 {}
    for node in [to, from, &cluster.0[1]] {
        let _: () = node.command(&format!("CLUSTER SETSLOT {slot} NODE {new_owner}"));
    }
    assert_eq!(store.find(&first, &last, 100).await.unwrap().len(), 25);

    // The whole slot has moved, and the node that has it now had the highest epoch before. The
    // store has learned of the move from a call, or not yet.
    for knows in [true, false] {
        move_slot(&cluster, slot, [to, from]);
        move_slot(&cluster, slot - 1, [from, to]);
        assert_eq!(rest(BTreeSet::new(), None).await, ids);
        let page = store.scan(&filter, None, 3).await.unwrap();
        let found = page.records.iter().map(|listed| listed.id).collect();
        assert_eq!(move_slot(&cluster, slot, [from, to]), ids.len() as u64);
        if knows {
            let id = key();
            assert_eq!(store.claim(&id, &request()).await.unwrap(), GRANTED);
            ids.insert(id);
        }
        assert_eq!(rest(found, page.next).await, ids);
        move_slot(&cluster, slot - 1, [to, from]);
    }
}
