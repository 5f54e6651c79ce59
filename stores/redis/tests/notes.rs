//! Notes of handlers, and the index of the attempts that have noted an input.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, OwnerToken, Principal, RecordId, ShortText,
    protocol::{Claim, Fence, Note, Resolution, Snapshot},
    store::Store,
};
use idempotent_http::recording::{RecordedBody, Recording};
use idempotent_redis::RedisStore;

use super::helpers::{GRANTED, describe, key, lease, request};
use test_support::decision;
use test_support::{
    proxy::{Cut, Direction, Plan, Proxy},
    servers::redis::{IN_MEMORY, Server},
};

/// The store's limit for one call of `resumable`.
const LOOKED_UP: u64 = 256;
const INDEX: &str = "idempotency:inputs";

fn input() -> Note {
    Note::input(Bytes::from_static(b"input"))
}

async fn claimed(store: &RedisStore, claim: &Claim) -> Lease {
    let id = key();
    assert_eq!(store.claim(&id, claim).await.unwrap(), GRANTED);
    lease(id, claim)
}

async fn noted(store: &RedisStore, note: &Note) -> Lease {
    let lease = claimed(store, &request()).await;
    assert_eq!(store.note(&lease, note).await.unwrap(), Fence::Passed);
    lease
}

/// The ids on the first page.
async fn resumable(store: &RedisStore) -> Vec<RecordId> {
    store.resumable(&request().operation, None, 10).await.unwrap().ids
}

/// Adds an attempt to the index, as a note does before it writes the record.
fn index(server: &Server, attempt: &Lease) {
    let member = [attempt.id.as_bytes().as_slice(), attempt.owner.as_bytes()].concat();
    let mut connection = server.client().get_connection().unwrap();
    let () = redis::cmd("ZADD").arg(INDEX).arg(0).arg(member).query(&mut connection).unwrap();
}

fn indexed(server: &Server) -> u64 {
    server.command(&format!("ZCARD {INDEX}"))
}

/// Fails if the attempts that have ended remain in the index, which would then only grow.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_ends_leaves_the_index() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let [completed, released, held] = [
        noted(&store, &input()).await,
        noted(&store, &input()).await,
        noted(&store, &input()).await,
    ];
    noted(&store, &Note::step(Bytes::from_static(b"step"))).await;
    assert_eq!(indexed(&server), 3);
    assert_eq!(store.complete(&completed, &Bytes::new()).await.unwrap(), Fence::Passed);
    assert_eq!(store.release(&released).await.unwrap(), Fence::Passed);
    assert_eq!(indexed(&server), 1);
    // An abandonment leaves the record, and with it the member, until the next look-up.
    assert_eq!(store.abandon(&held, Abandoned::Hold).await.unwrap(), Fence::Passed);
    assert_eq!(indexed(&server), 1);
    assert_eq!(resumable(&store).await, []);
    assert_eq!(indexed(&server), 0);
}

/// Fails if a look-up removes an attempt that may still note its input, or that has noted it.
#[tokio::test(flavor = "multi_thread")]
async fn a_note_under_way_stays_in_the_index() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let under_way = claimed(&store, &request()).await;
    let first = request().with_lease(Duration::ZERO);
    let taken_over = claimed(&store, &first).await;
    assert_eq!(store.note(&taken_over, &input()).await.unwrap(), Fence::Passed);
    let next = request();
    store.claim(&taken_over.id, &next).await.unwrap();
    for attempt in [&under_way, &taken_over] {
        index(&server, attempt);
        assert_eq!(resumable(&store).await, []);
    }
    assert_eq!(indexed(&server), 2);
    let next = lease(taken_over.id, &next);
    assert_eq!(store.abandon(&next, Abandoned::Retry).await.unwrap(), Fence::Passed);
    assert_eq!(resumable(&store).await, [taken_over.id]);
    // Both attempts have noted an input, and the operation is returned once.
    let last = request();
    store.claim(&taken_over.id, &last).await.unwrap();
    let last = lease(taken_over.id, &last);
    assert_eq!(store.note(&last, &input()).await.unwrap(), Fence::Passed);
    assert_eq!(store.abandon(&last, Abandoned::Retry).await.unwrap(), Fence::Passed);
    assert_eq!(indexed(&server), 3);
    assert_eq!(resumable(&store).await, [taken_over.id]);
}

/// Fails if an attempt stays in the index that can neither be resumed nor note an input.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_cannot_be_resumed_is_removed_from_the_index() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let owner = OwnerToken::random().unwrap();
    let absent = Lease { id: key(), owner };
    let replaced = Lease { owner, ..claimed(&store, &request()).await };
    let hold = request().with_abandoned(Abandoned::Hold);
    let under_hold = claimed(&store, &hold).await;
    let past_no_return = noted(&store, &input()).await;
    assert_eq!(store.note(&past_no_return, &Note::hold()).await.unwrap(), Fence::Passed);
    let [completed, resolved] = [claimed(&store, &request()).await, claimed(&store, &hold).await];
    assert_eq!(store.complete(&completed, &Bytes::new()).await.unwrap(), Fence::Passed);
    assert_eq!(store.abandon(&resolved, Abandoned::Hold).await.unwrap(), Fence::Passed);
    store
        .resolve(&resolved.id, &resolved.owner, &Resolution::Release, &decision(&resolved.id))
        .await
        .unwrap();
    assert_eq!(resumable(&store).await, []);
    assert_eq!(indexed(&server), 0);
    for attempt in [absent, replaced, under_hold, past_no_return, completed, resolved] {
        index(&server, &attempt);
        assert_eq!(indexed(&server), 1);
        assert_eq!(resumable(&store).await, []);
        assert_eq!(indexed(&server), 0, "{attempt:?}");
    }
}

/// Fails if operations that cannot be resumed yet, or that no one resumes, hide others behind the
/// limit, or if one call looks up all of them.
#[tokio::test(flavor = "multi_thread")]
async fn many_live_operations_do_not_hide_an_abandoned_one() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    for _ in 0..600 {
        noted(&store, &input()).await;
    }
    let mut abandoned = BTreeSet::new();
    for _ in 0..5 {
        let lease = noted(&store, &input()).await;
        assert_eq!(store.abandon(&lease, Abandoned::Retry).await.unwrap(), Fence::Passed);
        abandoned.insert(lease.id);
    }
    let (mut found, mut after, mut calls) = (BTreeSet::new(), None, 0);
    loop {
        let before = server.calls("evalsha");
        let operation = request().operation;
        let page = store.resumable(&operation, after.as_ref(), 2).await.unwrap();
        assert!(page.ids.len() <= 2 && server.calls("evalsha") - before <= LOOKED_UP);
        found.extend(page.ids);
        calls += 1;
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(found, abandoned);
    assert!((3..=6).contains(&calls), "{calls}");
    assert_eq!(indexed(&server), 605);
}

/// Fails if an input is noted that is not in the index: it would never be found.
#[tokio::test(flavor = "multi_thread")]
async fn an_input_is_in_the_index_before_it_is_in_the_record() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let lease = claimed(&store, &request()).await;
    let _: () = server.command(&format!("SET {INDEX} value"));
    assert!(store.note(&lease, &input()).await.is_err());
    let found = store.look_up(&lease.id).await.unwrap().unwrap();
    assert!(found.record.notes.input.is_empty());
    assert!(store.resumable(&request().operation, None, 10).await.is_err());
    // Only notes with an input need the index.
    assert_eq!(store.note(&lease, &Note::hold()).await.unwrap(), Fence::Passed);
}

/// Fails if a full server refuses the notes of a granted claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_accepts_notes() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let [one, other] = [claimed(&store, &request()).await, claimed(&store, &request()).await];
    let _: () = server.command("CONFIG SET maxmemory 1");
    let step = Note::step(Bytes::from(vec![1; 1024]));
    for note in [input(), step, Note::reference(ShortText::new("pi_1").unwrap()), Note::hold()] {
        assert_eq!(store.note(&one, &note).await.unwrap(), Fence::Passed);
    }
    assert_eq!(store.note(&other, &input()).await.unwrap(), Fence::Passed);
    assert_eq!(store.abandon(&other, Abandoned::Retry).await.unwrap(), Fence::Passed);
    assert_eq!(resumable(&store).await, [other.id]);
}

/// Fails if a step is added twice because its acknowledgment was lost, or if any other note whose
/// acknowledgment was lost fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_note_is_sent_again_unless_it_has_a_step() {
    let server = Server::start(IN_MEMORY);
    let proxy = Proxy::in_front_of("127.0.0.1", server.port).await;
    let url = format!("redis://127.0.0.1:{}/", proxy.port);
    let store = RedisStore::connect(&url).await.unwrap();
    let step = Note::step(Bytes::from_static(b"step;"));
    let lease = noted(&store, &step).await;
    let reference = Note::reference(ShortText::new("pi_1").unwrap());
    for (note, is_sent_again) in [(step, false), (reference, true), (Note::hold(), true)] {
        let plan = Plan { direction: Direction::ToClient, after: 0, cut: Cut::Fin, outage: false };
        // Opens a connection, if the last one was cut.
        store.look_up(&lease.id).await.unwrap();
        proxy.count(Some(plan));
        match store.note(&lease, &note).await {
            Ok(fence) => assert!(is_sent_again && fence == Fence::Passed, "{note:?}"),
            Err(error) => assert!(!is_sent_again && error.is_transient(), "{}", describe(&error)),
        }
        assert_eq!(proxy.cuts(), 1);
    }
    let record = store.look_up(&lease.id).await.unwrap().unwrap().record;
    assert_eq!(record.notes.steps, "step;step;");
    assert_eq!(record.notes.reference.as_deref(), Some("pi_1"));
    assert_eq!(record.abandoned, Abandoned::Hold);
}

/// Fails if the completion of a claim in one step forgets what the claim said, or if its time and
/// status differ from those of a completion that reads the record first.
#[tokio::test(flavor = "multi_thread")]
async fn both_ways_of_completing_write_the_same() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let recording =
        bytes::Bytes::from(Recording::new(201, Vec::new(), RecordedBody::None).encode());
    let longest = ShortText::new(&"a".repeat(ShortText::MAX_BYTES)).unwrap();
    for operation in [ShortText::EMPTY, longest] {
        for principal in [None, Some(Principal::from_bytes([5; 16]))] {
            let claim = request().with_operation(operation.clone()).with_principal(principal);
            let mut completed = Vec::new();
            for is_first in [true, false] {
                let lease = claimed(&store, &claim).await;
                if !is_first {
                    assert_eq!(store.note(&lease, &Note::default()).await.unwrap(), Fence::Passed);
                }
                let times = server.calls("time");
                assert_eq!(store.complete(&lease, &recording).await.unwrap(), Fence::Passed);
                assert_eq!(server.calls("time") == times, is_first, "{operation:?} {principal:?}");
                let Snapshot { record, at, .. } = store.look_up(&lease.id).await.unwrap().unwrap();
                let completed_at = record.completed_at.unwrap();
                assert!(record.first_seen <= completed_at && completed_at <= at, "{record:?}");
                let [first_seen, expires_at] = [record.first_seen, record.expires_at];
                assert_eq!(expires_at, first_seen.after(claim.ttl));
                completed.push(record);
            }
            let [first, second] = &completed[..] else { unreachable!() };
            assert_eq!((first.status, &first.operation), (Some(201), &operation));
            assert_eq!((first.status, &first.operation), (second.status, &second.operation));
            assert_eq!((first.principal, &first.state), (principal, &second.state));
            assert_eq!(second.principal, principal);
        }
    }
}
