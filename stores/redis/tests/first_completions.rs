//! First claims that are completed without a script and without being read, by servers that can
//! compare a value before they replace it. On other servers the script completes them, which the
//! tests expect there.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, ShortText,
    history::Kind,
    protocol::{Claim, ClaimOutcome, Fence, Note, Rejection, Removal, Renewal},
    store::{Administration as _, Store},
};
use idempotent_http::recording::{RecordedBody, Recording};
use idempotent_redis::{
    RedisStore,
    internals::{
        advance_first_claims, alter_redis, expect_comparisons, forget_first_claims, with_options,
    },
};

use super::helpers::{GRANTED, compares_values, key, lease, request};
use test_support::{
    decision,
    servers::redis::{IN_MEMORY, Server},
};

const SECOND: Duration = Duration::from_secs(1);
const NOTHING: [(&str, &str); 0] = [];

fn recording() -> Bytes {
    Bytes::from(Recording::new(201, Vec::new(), RecordedBody::Whole("done".into())).encode())
}

async fn open(server: &Server) -> RedisStore {
    RedisStore::connect(&server.url()).await.unwrap()
}

async fn claimed(store: &RedisStore, claim: &Claim) -> Lease {
    let id = key();
    assert_eq!(store.claim(&id, claim).await.unwrap(), GRANTED);
    lease(id, claim)
}

/// Completes a claim, and returns the outcome and how often that has called a script by its hash.
async fn complete(server: &Server, store: &RedisStore, lease: &Lease) -> (Fence, u64) {
    let _: () = server.command("CONFIG RESETSTAT");
    let fence = store.complete(lease, &recording()).await.unwrap();
    (fence, server.calls("evalsha"))
}

/// What the server has for a record: its value, and how long it is kept.
fn stored(server: &Server, lease: &Lease) -> (Vec<u8>, u64) {
    let mut connection = server.client().get_connection().unwrap();
    let key = [&b"idempotency:"[..], lease.id.as_bytes()].concat();
    let value = redis::cmd("GET").arg(&key).query(&mut connection).unwrap();
    (value, redis::cmd("PTTL").arg(&key).query(&mut connection).unwrap())
}

/// Fails if the record differs from the one that the script writes, except in its times.
#[tokio::test]
async fn a_first_claim_is_completed_as_the_script_does_it() {
    let server = Server::start(IN_MEMORY);
    let store = open(&server).await;
    let by_script = alter_redis(store.clone(), &NOTHING);
    let mut claim = request();
    claim.operation = ShortText::new("POST /v1/payments").unwrap();
    let [direct, scripted] = [claimed(&store, &claim).await, claimed(&by_script, &claim).await];
    let scripts = u64::from(!compares_values(&server));
    assert_eq!(complete(&server, &store, &direct).await, (Fence::Passed, scripts));
    assert_eq!(complete(&server, &by_script, &scripted).await.0, Fence::Passed);
    let [direct, scripted] = [&direct, &scripted].map(|lease| stored(&server, lease).0);
    // The time that is left is between them.
    let (before, after) = (..91, 99..);
    assert_eq!((&direct[before], &direct[after.clone()]), (&scripted[before], &scripted[after]));
}

#[tokio::test]
async fn a_record_shows_when_it_was_claimed_and_completed() {
    let server = Server::start(IN_MEMORY);
    let store = open(&server).await;
    let lease = claimed(&store, &request()).await;
    let begun = store.look_up(&lease.id).await.unwrap().unwrap().record;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(complete(&server, &store, &lease).await.0, Fence::Passed);
    let record = store.look_up(&lease.id).await.unwrap().unwrap().record;
    let late = record.first_seen.duration_since(begun.first_seen);
    assert!(record.first_seen >= begun.first_seen && late < SECOND, "{late:?}");
    let worked = record.completed_at.unwrap().duration_since(begun.first_seen);
    assert!((Duration::from_millis(50)..2 * SECOND).contains(&worked), "{worked:?}");
    assert_eq!(record.status, Some(201));
    let kinds: Vec<_> = record.history.entries().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [Kind::Claimed, Kind::Completed]);
}

/// Fails if a record that another step has changed is replaced without the script, or if a change
/// by the same owner costs the recording.
#[tokio::test]
async fn a_claim_that_has_changed_is_left_to_the_script() {
    let server = Server::start(IN_MEMORY);
    let (store, other) = (open(&server).await, open(&server).await);
    // Changes by another process, of which this one does not know.
    let renewed = claimed(&store, &request()).await;
    other.renew(&[Renewal::new(renewed, 30 * SECOND)]).await.unwrap();
    assert_eq!(complete(&server, &store, &renewed).await, (Fence::Passed, 1));
    let noted = claimed(&store, &request()).await;
    let note = Note::input(Bytes::from_static(b"input"));
    assert_eq!(other.note(&noted, &note).await.unwrap(), Fence::Passed);
    assert_eq!(complete(&server, &store, &noted).await.0, Fence::Passed);
    assert_eq!(server.command::<u64>("ZCARD idempotency:inputs"), 0);
    let shown = claimed(&store, &request()).await;
    other.append_history(&shown.id, Kind::Resolved).await.unwrap();
    assert_eq!(complete(&server, &store, &shown).await, (Fence::Passed, 1));
    let taken_over = claimed(&store, &request()).await;
    assert_eq!(other.abandon(&taken_over, Abandoned::Retry).await.unwrap(), Fence::Passed);
    let successor = request();
    let outcome = other.claim(&taken_over.id, &successor).await.unwrap();
    assert_eq!(outcome, ClaimOutcome::Granted { attempt: 2 });
    assert_eq!(complete(&server, &store, &taken_over).await, (Fence::Fenced, 1));
    let found = store.look_up(&taken_over.id).await.unwrap().unwrap();
    assert_eq!(found.record.owner, successor.owner);
    let removed = claimed(&store, &request()).await;
    let (removal, audit) = (Removal::of_any(removed.owner), decision(&removed.id));
    assert!(other.remove(&removed.id, &removal, &audit).await.unwrap());
    assert_eq!(complete(&server, &store, &removed).await, (Fence::Fenced, 1));
    assert!(store.look_up(&removed.id).await.unwrap().is_none());
    // Its own changes do not cost a round trip.
    let noted = claimed(&store, &request()).await;
    assert_eq!(store.note(&noted, &note).await.unwrap(), Fence::Passed);
    let _: () = server.command("CONFIG RESETSTAT");
    assert_eq!(store.complete(&noted, &recording()).await.unwrap(), Fence::Passed);
    assert_eq!((server.calls("set"), server.command::<u64>("ZCARD idempotency:inputs")), (1, 0));
}

/// Fails if a completion that is sent again replaces the recording, or is fenced.
#[tokio::test]
async fn a_completion_that_is_sent_again_passes() {
    let server = Server::start(IN_MEMORY);
    let store = open(&server).await;
    let lease = claimed(&store, &request()).await;
    assert_eq!(complete(&server, &store, &lease).await.0, Fence::Passed);
    let again = store.complete(&lease, &Bytes::from_static(b"another")).await.unwrap();
    assert_eq!(again, Fence::Passed);
    let replay = store.claim(&lease.id, &request()).await.unwrap();
    assert_eq!(replay, ClaimOutcome::Rejected(Rejection::Completed(recording())));
}

/// Fails if a recording expires before its ttl has passed since the claim, or much later.
#[tokio::test]
async fn a_recording_is_kept_for_the_rest_of_the_ttl() {
    let server = Server::start(IN_MEMORY);
    let store = open(&server).await;
    let (long, short) = (claimed(&store, &request()).await, request().with_ttl(60 * SECOND));
    let short = claimed(&store, &short).await;
    advance_first_claims(&store, 9 * SECOND);
    let passed = if compares_values(&server) { 9_000 } else { 0 };
    for (lease, ttl) in [(&long, 24 * 60 * 60 * 1000), (&short, 60_000)] {
        assert_eq!(complete(&server, &store, lease).await.0, Fence::Passed);
        let left = stored(&server, lease).1;
        assert!((ttl - passed - 1_000..=ttl - passed).contains(&left), "{left} of {ttl}");
    }
}

/// Fails if a process whose lease may have been renewed since trusts its own clock.
#[tokio::test]
async fn a_claim_is_left_to_the_script_after_a_third_of_its_lease() {
    let server = Server::start(IN_MEMORY);
    let store = open(&server).await;
    let at_first = u64::from(!compares_values(&server));
    for (passed, scripts) in [(9 * SECOND, at_first), (10 * SECOND, 1), (3600 * SECOND, 1)] {
        let lease = claimed(&store, &request()).await;
        advance_first_claims(&store, passed);
        assert_eq!(complete(&server, &store, &lease).await, (Fence::Passed, scripts), "{passed:?}");
        let left = stored(&server, &lease).1;
        assert!(left > (24 * 60 * 60 - 10) * 1000, "{left}");
    }
}

/// Fails if a claim whose times are absolute is completed without the script, which must remove it
/// from the watch list.
#[tokio::test]
async fn a_claim_that_can_be_held_is_left_to_the_script() {
    let server = Server::start(IN_MEMORY);
    let store = open(&server).await;
    let held = request().with_abandoned(Abandoned::Hold);
    for claim in [held, request().with_ttl(SECOND)] {
        let lease = claimed(&store, &claim).await;
        assert_eq!(complete(&server, &store, &lease).await, (Fence::Passed, 1));
        assert_eq!(server.command::<u64>("ZCARD idempotency:watched"), 0);
    }
}

#[tokio::test]
async fn a_claim_of_another_process_is_completed_by_the_script() {
    let server = Server::start(IN_MEMORY);
    let (store, other) = (open(&server).await, open(&server).await);
    let lease = claimed(&other, &request()).await;
    assert_eq!(complete(&server, &store, &lease).await, (Fence::Passed, 1));
    let forgotten = claimed(&store, &request()).await;
    forget_first_claims(&store);
    assert_eq!(complete(&server, &store, &forgotten).await, (Fence::Passed, 1));
}

/// Fails if a server that refuses the option, as any older one does, gets no script.
#[tokio::test]
async fn a_server_that_refuses_the_option_gets_the_script() {
    let server = Server::start(IN_MEMORY);
    let store = open(&server).await;
    expect_comparisons(&store, true);
    let lease = claimed(&store, &request()).await;
    let scripts = u64::from(!compares_values(&server));
    assert_eq!(complete(&server, &store, &lease).await, (Fence::Passed, scripts));
    let replay = store.claim(&lease.id, &request()).await.unwrap();
    assert_eq!(replay, ClaimOutcome::Rejected(Rejection::Completed(recording())));
}

/// Fails if an older server gets the option: before the claim, or because it has become the master
/// since.
#[tokio::test]
async fn a_server_that_cannot_compare_does_not_get_the_option() {
    let server = Server::start(IN_MEMORY);
    let store = open(&server).await;
    for [at_claim, at_completion] in [[false, true], [true, false]] {
        expect_comparisons(&store, at_claim);
        let lease = claimed(&store, &request()).await;
        expect_comparisons(&store, at_completion);
        assert_eq!(complete(&server, &store, &lease).await, (Fence::Passed, 1));
        assert_eq!(server.calls("set"), 1);
    }
}

#[tokio::test]
async fn a_full_server_completes_first_claims() {
    let server = Server::start(IN_MEMORY);
    let store = open(&server).await;
    let lease = claimed(&store, &request()).await;
    let _: () = server.command("CONFIG SET maxmemory 1");
    assert_eq!(complete(&server, &store, &lease).await, (Fence::Passed, 1));
}

/// Fails if the completion is acknowledged without the replica, or is not when it is sent again.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_completion_waits_for_replicas() {
    let server = Server::start(IN_MEMORY);
    let options = RedisStore::options().wait_for_replicas(1, SECOND);
    let store = with_options(&open(&server).await, &options);
    let mut replica = server.replica(IN_MEMORY);
    let lease = claimed(&store, &request()).await;
    replica.kill();
    let failed = store.complete(&lease, &recording()).await;
    assert!(failed.unwrap_err().is_transient());
    let replica = server.replica(IN_MEMORY);
    assert_eq!(store.complete(&lease, &recording()).await.unwrap(), Fence::Passed);
    let next = claimed(&store, &request()).await;
    let scripts = u64::from(!compares_values(&server));
    assert_eq!(complete(&server, &store, &next).await, (Fence::Passed, scripts));
    assert_eq!(replica.info("db0").unwrap().split(',').next(), Some("keys=2"));
}
