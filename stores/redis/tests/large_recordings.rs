//! Large recordings that are stored without a script after the claim was read, by servers that can
//! compare a value before they replace it. On other servers the script stores them, which the tests
//! expect there.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    protocol::{ClaimOutcome, Fence, Note, Rejection},
    store::Store,
};
use idempotent_redis::{
    RedisStore,
    internals::{alter_redis, with_large_recordings_from, with_options},
};

use super::helpers::{GRANTED, compares_values, key, lease, request};
use test_support::servers::redis::{IN_MEMORY, Server};

const LOOK_UP: &str = include_str!("../src/lua/look_up.lua");
const COMPLETE_FIRST: &str = include_str!("../src/lua/complete_first.lua");
const READ_ONLY: &str = "#!lua flags=no-writes";
const LARGE: usize = 64 * 1024;

fn recording(bytes: usize) -> Bytes {
    Bytes::from(vec![7; bytes])
}

/// A store that does not know the values of its claims.
async fn open(server: &Server) -> RedisStore {
    with_large_recordings_from(RedisStore::connect(&server.url()).await.unwrap(), LARGE)
}

#[tokio::test]
async fn a_large_recording_is_stored_without_a_script_if_the_server_can() {
    let server = Server::start(IN_MEMORY);
    let without_script = alter_redis(open(&server).await, &[(COMPLETE_FIRST, "error('called')\n")]);
    for (bytes, stored) in [(LARGE - 1, false), (LARGE, compares_values(&server))] {
        let (id, claim) = (key(), request());
        assert_eq!(without_script.claim(&id, &claim).await.unwrap(), GRANTED);
        let completed = without_script.complete(&lease(id, &claim), &recording(bytes)).await;
        assert_eq!(completed.is_ok(), stored, "{bytes} bytes: {completed:?}");
        if stored {
            let replay = without_script.claim(&id, &request()).await.unwrap();
            assert_eq!(replay, ClaimOutcome::Rejected(Rejection::Completed(recording(bytes))));
        }
    }
}

/// Fails if the recording replaces a record that has changed since it was read, or is lost because
/// of a change that the same owner has made.
#[tokio::test]
async fn a_record_that_changes_between_read_and_write_is_left_to_the_script() {
    let server = Server::start(IN_MEMORY);
    // The script that reads the record changes it afterwards: its owner, or the end of its lease.
    for (offset, of_other_owner) in [(7, true), (59, false)] {
        let change = format!(
            "local found = {{ time(), value, redis.call('PEXPIRETIME', KEYS[1]) }}\n\
             redis.call('SETRANGE', KEYS[1], {offset}, '\\0\\0\\0\\0\\0\\0\\1\\1')\n\
             return found\n"
        );
        let changed = LOOK_UP
            .replace("return { time(), value, redis.call('PEXPIRETIME', KEYS[1]) }\n", &change);
        assert_ne!(changed, LOOK_UP);
        let store = open(&server).await;
        let changing =
            alter_redis(store.clone(), &[(READ_ONLY, "#!lua"), (LOOK_UP, changed.as_str())]);
        let (id, claim) = (key(), request());
        assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
        let completed = changing.complete(&lease(id, &claim), &recording(LARGE)).await.unwrap();
        let fenced = of_other_owner && compares_values(&server);
        assert_eq!(completed, if fenced { Fence::Fenced } else { Fence::Passed });
        let later = store.claim(&id, &request()).await.unwrap();
        let in_flight = matches!(later, ClaimOutcome::Rejected(Rejection::InFlight { .. }));
        assert_eq!(in_flight, fenced, "{later:?}");
    }
}

/// Fails if a server that executes the write after the ttl deletes the record, or if the recording
/// is kept for less time than one that was written in time.
#[tokio::test]
async fn a_recording_that_is_written_late_is_kept() {
    let server = Server::start(IN_MEMORY);
    // The record was read 25 hours ago, when 24 hours were left.
    let reply = "return { time(), value, redis.call('PEXPIRETIME', KEYS[1]) }\n";
    let late = "return { time() - 90000000, value, \
                redis.call('PEXPIRETIME', KEYS[1]) - 90000000 }\n";
    let read_earlier = LOOK_UP.replace(reply, late);
    assert_ne!(read_earlier, LOOK_UP);
    let store = open(&server).await;
    let delayed = alter_redis(store.clone(), &[(LOOK_UP, &read_earlier)]);
    let (id, claim) = (key(), request());
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    let completed = delayed.complete(&lease(id, &claim), &recording(LARGE)).await.unwrap();
    assert_eq!(completed, Fence::Passed);
    let replay = store.claim(&id, &request()).await.unwrap();
    assert!(
        replay == ClaimOutcome::Rejected(Rejection::Completed(recording(LARGE))),
        "not a replay"
    );
    let found = store.look_up(&id).await.unwrap().unwrap();
    let left = found.record.expires_at.duration_since(found.at);
    assert!(left > Duration::from_secs(23 * 60 * 60), "{left:?}");
}

#[tokio::test]
async fn a_large_recording_removes_the_attempt_from_the_index() {
    let server = Server::start(IN_MEMORY);
    let (store, id, claim) = (open(&server).await, key(), request());
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    let note = Note::input(Bytes::from_static(b"input"));
    assert_eq!(store.note(&lease(id, &claim), &note).await.unwrap(), Fence::Passed);
    assert_eq!(server.command::<u64>("ZCARD idempotency:inputs"), 1);
    let completed = store.complete(&lease(id, &claim), &recording(LARGE)).await.unwrap();
    assert_eq!(completed, Fence::Passed);
    assert_eq!(server.command::<u64>("ZCARD idempotency:inputs"), 0);
}

#[tokio::test]
async fn a_full_server_accepts_a_large_recording() {
    let server = Server::start(IN_MEMORY);
    let (store, id, claim) = (open(&server).await, key(), request());
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    let mut connection = server.client().get_connection().unwrap();
    let () = redis::cmd("CONFIG").arg(&["SET", "maxmemory", "1"]).query(&mut connection).unwrap();
    assert!(store.claim(&key(), &request()).await.unwrap_err().is_transient());
    let completed = store.complete(&lease(id, &claim), &recording(LARGE)).await.unwrap();
    assert_eq!(completed, Fence::Passed);
    let replay = store.claim(&id, &request()).await.unwrap();
    assert_eq!(replay, ClaimOutcome::Rejected(Rejection::Completed(recording(LARGE))));
}

/// Fails if the completion is acknowledged without the replica, or is not when it is sent again.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_recording_waits_for_replicas() {
    let server = Server::start(IN_MEMORY);
    let waiting = |within| RedisStore::options().wait_for_replicas(1, within);
    let alone = with_large_recordings_from(open(&server).await, 0);
    let (id, claim) = (key(), request());
    assert_eq!(alone.claim(&id, &claim).await.unwrap(), GRANTED);
    let impatient = with_options(&alone, &waiting(Duration::from_millis(100)));
    let completed = impatient.complete(&lease(id, &claim), &recording(9)).await;
    assert!(completed.unwrap_err().is_transient());
    let replicated = with_options(&alone, &waiting(Duration::from_secs(10)));
    let replica = server.replica(IN_MEMORY);
    let completed = replicated.complete(&lease(id, &claim), &recording(9)).await.unwrap();
    assert_eq!(completed, Fence::Passed);
    let (id, claim) = (key(), request());
    assert_eq!(replicated.claim(&id, &claim).await.unwrap(), GRANTED);
    let completed = replicated.complete(&lease(id, &claim), &recording(9)).await.unwrap();
    assert_eq!(completed, Fence::Passed);
    assert_eq!(replica.info("db0").unwrap().split(',').next(), Some("keys=2"));
}
