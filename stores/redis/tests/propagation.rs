//! What the server passes on to its replicas and to its append-only file. An older server refuses a
//! command that it does not know, and acknowledges it all the same; `WAIT` counts it.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease,
    protocol::{Claim, ClaimOutcome, Fence, Note, Rejection, Renewal, Resolution},
    store::Store,
};
use idempotent_redis::{RedisStore, internals::with_options};

use super::helpers::{GRANTED, key, lease, request};
use test_support::decision;
use test_support::servers::redis::{DURABLE, IN_MEMORY, Replica, Server, Written, wait_until};

/// Recordings that are stored in different ways.
const LENGTHS: [usize; 3] = [9, 64 * 1024, 1024 * 1024];

fn recording(bytes: usize) -> Bytes {
    Bytes::from(vec![7; bytes])
}

async fn claimed(store: &RedisStore, claim: &Claim) -> Lease {
    let id = key();
    assert_eq!(store.claim(&id, claim).await.unwrap(), GRANTED);
    lease(id, claim)
}

/// Takes every step of the store that writes.
async fn write_everything(store: &RedisStore) {
    let held = request().with_abandoned(Abandoned::Hold);
    let longer_than_ttl = request().with_ttl(Duration::ZERO);
    for claim in [&request(), &held, &longer_than_ttl] {
        for bytes in LENGTHS {
            let lease = claimed(store, claim).await;
            assert_eq!(store.complete(&lease, &recording(bytes)).await.unwrap(), Fence::Passed);
            if !claim.ttl.is_zero() {
                assert_eq!(store.complete(&lease, &recording(bytes)).await.unwrap(), Fence::Passed);
            }
        }
    }
    for bytes in LENGTHS {
        let lease = claimed(store, &request()).await;
        store.renew(&[Renewal::new(lease, Duration::from_secs(30))]).await.unwrap();
        assert_eq!(store.complete(&lease, &recording(bytes)).await.unwrap(), Fence::Passed);
    }
    let lease = claimed(store, &request()).await;
    for note in [Note::step(recording(9)), Note::input(recording(9))] {
        assert_eq!(store.note(&lease, &note).await.unwrap(), Fence::Passed);
    }
    assert_eq!(store.complete(&lease, &recording(9)).await.unwrap(), Fence::Passed);
    let released = claimed(store, &request()).await;
    assert_eq!(store.release(&released).await.unwrap(), Fence::Passed);
    let first = claimed(store, &request()).await;
    assert_eq!(store.abandon(&first, Abandoned::Retry).await.unwrap(), Fence::Passed);
    let second = store.claim(&first.id, &request()).await.unwrap();
    assert_eq!(second, ClaimOutcome::Granted { attempt: 2 });
    for resolution in [Resolution::Release, Resolution::Complete(recording(9))] {
        let held = claimed(store, &held).await;
        assert_eq!(store.abandon(&held, Abandoned::Hold).await.unwrap(), Fence::Passed);
        store.resolve(&held.id, &held.owner, &resolution, &decision(&held.id)).await.unwrap();
    }
    // Holds a key that is held already, and fails, since no replica acknowledges it.
    let held = claimed(store, &held).await;
    assert_eq!(store.abandon(&held, Abandoned::Hold).await.unwrap(), Fence::Passed);
    let options = RedisStore::options().wait_for_replicas(1, Duration::from_millis(1));
    let replicated = with_options(store, &options);
    assert!(replicated.abandon(&held, Abandoned::Hold).await.unwrap_err().is_transient());
}

/// The command as Redis 7.0 documents it, with a placeholder for each argument that varies; `None`
/// if Redis 7.0 may not know it.
fn known_to_redis_7_0(command: &Written) -> Option<&'static str> {
    let words: Vec<_> = command.iter().map(|word| word.to_ascii_uppercase()).collect();
    let words: Vec<_> = words.iter().map(Vec::as_slice).collect();
    match words[..] {
        [b"SET", _, _] => Some("SET key value"),
        [b"SET", _, _, b"PXAT", _] => Some("SET key value PXAT time"),
        [b"SET", _, _, b"KEEPTTL"] => Some("SET key value KEEPTTL"),
        [b"DEL" | b"UNLINK", _] => Some("DEL key"),
        [b"ZADD", _, score, _] if score.iter().all(u8::is_ascii_digit) => {
            Some("ZADD key score member")
        }
        [b"XADD", _, id, b"BEFORE", ..] if id != b"*" => Some("XADD key id field value"),
        [b"ZREM", _, _] => Some("ZREM key member"),
        [b"SELECT", _] | [b"PING"] | [b"MULTI"] | [b"EXEC"] | [b"REPLCONF", b"GETACK", b"*"] => {
            Some("of the server itself")
        }
        _ => None,
    }
}

fn assert_known_to_redis_7_0(commands: &[Written]) {
    let unknown: Vec<_> = commands
        .iter()
        .filter(|command| known_to_redis_7_0(command).is_none())
        .map(|command| {
            let words = command.iter().map(|word| word.get(..16).unwrap_or(word));
            words.map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert_eq!(unknown, [""; 0]);
    let mut found: Vec<_> = commands.iter().filter_map(known_to_redis_7_0).collect();
    found.sort_unstable();
    found.dedup();
    // The steps above have written, each in its way.
    assert_eq!(found.len(), 8, "{found:?}");
    let large = |command: &&Written| command.get(2).is_some_and(|value| value.len() >= LENGTHS[1]);
    assert!(commands.iter().filter(large).count() >= 8);
}

/// Fails if a replica or an append-only file gets a command that Redis 7.0 cannot execute.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_and_the_file_get_only_commands_of_redis_7_0() {
    let server = Server::start(DURABLE);
    let mut replica = Replica::of(&server);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    write_everything(&store).await;
    store.check().await.unwrap();
    let _: u64 = server.command("PUBLISH end end");
    assert_known_to_redis_7_0(&replica.read_until("PUBLISH"));
    assert_known_to_redis_7_0(&server.append_only_file());
}

/// Fails if a key is granted again after a failover to a replica of an older release, which had
/// acknowledged the recording. An older replica cannot copy the data of a newer master, but it
/// follows one that was promoted during an upgrade. Without two releases, both are the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_recording_survives_a_failover_to_an_older_release() {
    let at_once = ["--repl-diskless-sync-delay", "0"];
    let old = Server::start_last_in_path(&[IN_MEMORY, &at_once].concat());
    let new = old.replica(IN_MEMORY);
    let _: () = new.command("REPLICAOF NO ONE");
    let _: () = old.command(&format!("REPLICAOF 127.0.0.1 {}", new.port));
    wait_until("the replica is in sync", || {
        old.info("master_link_status").as_deref() == Some("up")
    });
    assert_eq!(new.info("sync_partial_ok").as_deref(), Some("1"));

    let options = RedisStore::options().wait_for_replicas(1, Duration::from_secs(10));
    let store = options.connect(&new.url()).await.unwrap();
    let mut completed = Vec::new();
    for bytes in LENGTHS.into_iter().cycle().take(12) {
        let lease = claimed(&store, &request()).await;
        assert_eq!(store.complete(&lease, &recording(bytes)).await.unwrap(), Fence::Passed);
        completed.push((lease.id, recording(bytes)));
    }
    let _: () = old.command("REPLICAOF NO ONE");
    let store = RedisStore::connect(&old.url()).await.unwrap();
    for (id, recording) in completed {
        let replay = store.claim(&id, &request()).await.unwrap();
        assert!(replay == ClaimOutcome::Rejected(Rejection::Completed(recording)), "not a replay");
    }
}
