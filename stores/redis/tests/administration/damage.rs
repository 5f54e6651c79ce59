//! Lists and logs with keys and entries that are not the store's, or whose records are gone.

use bytes::Bytes;
use idempotent_core::{
    Abandoned, RecordId,
    protocol::{Fence, RecordFilter, Removal},
    store::{Administration, Store},
};

use super::{LOG, WATCHED, claimed, held, logged, members, remove, scanned, sorted, watched};
use crate::helpers::{key, open_store};
use test_support::{
    decision,
    servers::redis::{IN_MEMORY, Server},
};

fn path(id: &RecordId) -> Vec<u8> {
    [b"idempotency:".as_slice(), id.as_bytes()].concat()
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
    for limit in [1, 10] {
        assert_eq!(watched(&store, limit).await, [live.id]);
        let scanned: Vec<_> = scanned(&store, limit).await.iter().map(|one| one.id).collect();
        assert_eq!(scanned, [live.id]);
    }
    assert_eq!(store.count().await.unwrap().held, 1);
    let (first, last) = (RecordId::from_bytes([0; 32]), RecordId::from_bytes([0xff; 32]));
    assert_eq!(store.find(&first, &last, 10).await.unwrap().len(), 1);
    for id in [list, hash, text] {
        assert_eq!(store.find(&id, &id, 1).await.unwrap(), []);
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
