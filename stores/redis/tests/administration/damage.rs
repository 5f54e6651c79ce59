//! Lists and logs with keys and entries that are not the store's, or whose records are gone.

use std::error::Error;

use bytes::Bytes;
use idempotent_core::{
    Abandoned, RecordId,
    protocol::{Fence, RecordFilter, Removal},
    store::{Administration, Store},
};

use super::{LOG, WATCHED, claimed, held, logged, members, remove, scanned, sorted, watched};
use crate::helpers::{key, open_store};
use test_support::{
    administering::{List, Listed, assert_named_beside_others},
    decision,
    servers::redis::{IN_MEMORY, Server},
};

fn path(id: &RecordId) -> Vec<u8> {
    [b"idempotency:".as_slice(), id.as_bytes()].concat()
}

/// Fails if a damaged value hides the records beside it, or if nothing says which one is damaged.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_is_named_beside_the_others() {
    let server = Server::start(IN_MEMORY);
    let store = open_store(&server.url()).await;
    let [first, damaged, last] =
        [held(&store, key()).await, held(&store, key()).await, held(&store, key()).await];
    let mut connection = server.client().get_connection().unwrap();
    let value: Vec<u8> = redis::cmd("GET").arg(path(&damaged.id)).query(&mut connection).unwrap();
    for (at, byte) in [(0, 9), (1, 7), (2, 2), (value.len() - 1, b'x')] {
        let mut value = value.clone();
        value[at] = byte;
        redis::cmd("SET").arg(path(&damaged.id)).arg(&value).exec(&mut connection).unwrap();
        assert_named_beside_others(&store, &damaged.id, &[first.id, last.id]).await;
    }
    // A list leaves its entry as it is.
    assert_eq!(members(&server), 3);
}

/// Fails if a key of another type, a value that is no record, or an entry that is not the store's
/// hides the records beside it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_record_hides_none() {
    let server = Server::start(IN_MEMORY);
    let store = open_store(&server.url()).await;
    let mut connection = server.client().get_connection().unwrap();
    let mut run = |command: &str, key: &[u8], rest: &[&[u8]]| {
        redis::cmd(command).arg(key).arg(rest).exec(&mut connection).unwrap();
    };
    let live = held(&store, key()).await;
    let [list, hash, text] = [(); 3].map(|()| key());
    run("RPUSH", &path(&list), &[b"one"]);
    run("HSET", &path(&hash), &[b"one", b"two"]);
    run("SET", &path(&text), &[&[1; 200]]);
    for member in [list, hash, text].iter().map(|id| id.as_bytes().as_slice()) {
        run("ZADD", WATCHED.as_bytes(), &[b"1", member]);
    }
    for (score, member) in [("1", &b"short"[..]), ("-5", &[7; 33]), ("inf", &[8; 32])] {
        run("ZADD", WATCHED.as_bytes(), &[score.as_bytes(), member]);
    }
    let unreadable = sorted(vec![list, hash, text]);
    let expected = Listed { records: vec![live.id], unreadable };
    for limit in [1, 10] {
        for kind in [List::Watched, List::Scan] {
            assert_eq!(kind.all(&store, &RecordFilter::default(), limit).await, expected);
        }
    }
    assert_eq!(store.count().await.unwrap().held, 1);
    for id in [list, hash, text] {
        let error = store.find(&id, &id, 1).await.unwrap_err();
        let source = error.source().unwrap().to_string();
        assert!(error.is_unreadable() && source.contains(&id.to_string()), "{source}");
        let removal = Removal::of_any(live.owner);
        let refused = store.remove(&id, &removal, &decision(&id)).await.unwrap_err();
        assert!(refused.is_unreadable(), "{refused}");
    }
    run("XADD", LOG.as_bytes(), &[b"*", b"note", b"of somebody"]);
    remove(&store, &live).await;
    run("XADD", LOG.as_bytes(), &[b"*", b"id", b"\xff", b"action", b"?"]);
    for limit in [1, 10] {
        let logged = logged(&store, limit).await;
        assert_eq!(logged.iter().map(|one| one.entry.id).collect::<Vec<_>>(), [live.id]);
    }
}

/// Fails if a position, a decision or a list fails because all keys were deleted meanwhile, or if
/// what follows is not listed.
#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_server_has_empty_lists() {
    let server = Server::start(IN_MEMORY);
    let store = open_store(&server.url()).await;
    let mut leases = Vec::new();
    for _ in 0..5 {
        leases.push(held(&store, key()).await);
    }
    remove(&store, &leases.pop().unwrap()).await;
    let filter = RecordFilter::default();
    let list = store.watched(&filter, None, 2).await.unwrap().next;
    let scan = store.scan(&filter, None, 2).await.unwrap().next;
    assert!(list.is_some() && scan.is_some());
    let _: () = server.command("FLUSHALL");
    let _: () = server.command("SCRIPT FLUSH");
    assert_eq!(store.watched(&filter, list.as_ref(), 2).await.unwrap().records, []);
    assert_eq!(store.scan(&filter, scan.as_ref(), 2).await.unwrap().records, []);
    assert_eq!(store.count().await.unwrap().held, 0);
    assert_eq!(logged(&store, 10).await.len(), 0);
    let gone = leases[0];
    let removal = Removal::of_any(gone.owner);
    assert!(!store.remove(&gone.id, &removal, &decision(&gone.id)).await.unwrap());
    let again = held(&store, gone.id).await;
    assert_eq!(watched(&store, 10).await, [again.id]);

    // Only the list was deleted: each record is in it again as soon as its owner renews it, or a
    // request holds it.
    let working = claimed(&store, key(), Abandoned::Hold).await;
    let _: () = server.command(&format!("DEL {WATCHED}"));
    let renewal = idempotent_core::protocol::Renewal::new(working, super::Duration::from_secs(30));
    store.renew(&[renewal]).await.unwrap();
    assert_eq!(watched(&store, 10).await, [working.id]);
    let scanned = scanned(&store, 10).await.into_iter().map(|one| one.id).collect();
    assert_eq!(sorted(scanned), sorted(vec![working.id, again.id]));
    assert_eq!(store.complete(&working, &Bytes::new()).await.unwrap(), Fence::Passed);
    assert_eq!(members(&server), 0);
}
