//! Guarantees, and what they cost.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Abandoned,
    protocol::{ClaimOutcome, Fence, Rejection},
    store::Store,
};
use idempotent_http::recording::{RecordedBody, Recording};
use idempotent_redis::RedisStore;

use super::helpers::{GRANTED, compares_values, complete, describe, key, lease, request};
use test_support::decision;
use test_support::servers::redis::{DURABLE, IN_MEMORY, Server};

/// Fails if two of many claims, sent concurrently over many connections, are granted.
#[tokio::test(flavor = "multi_thread")]
async fn exactly_one_of_64_concurrent_claims_is_granted() {
    let server = Server::start(DURABLE);
    let mut stores = Vec::new();
    for _ in 0..64 {
        stores.push(RedisStore::connect(&server.url()).await.unwrap());
    }
    for _ in 0..20 {
        let id = key();
        let claims: Vec<_> = stores
            .iter()
            .map(|store| {
                let store = store.clone();
                tokio::spawn(async move { store.claim(&id, &request()).await.unwrap() })
            })
            .collect();
        let mut granted = 0;
        for claim in claims {
            let outcome = claim.await.unwrap();
            granted += usize::from(outcome == GRANTED);
            assert!(
                outcome == GRANTED
                    || matches!(outcome, ClaimOutcome::Rejected(Rejection::InFlight { .. })),
                "{outcome:?}"
            );
        }
        assert_eq!(granted, 1);
    }
}

/// Fails if a step depends on a script that the server may have evicted.
#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_the_server_evicted_are_sent_again() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let (id, claim) = (key(), request());
    let lease = lease(id, &claim);
    let renewal = idempotent_core::protocol::Renewal::new(lease, claim.lease);
    let flush = || server.command::<()>("SCRIPT FLUSH");
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    flush();
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    flush();
    assert_eq!(
        store.renew(&[renewal; 100]).await.unwrap(),
        vec![idempotent_core::protocol::RenewOutcome::Renewed; 100]
    );
    flush();
    assert!(store.look_up(&id).await.unwrap().is_some());
    flush();
    assert_eq!(store.release(&lease).await.unwrap(), Fence::Passed);
    let claim = claim.with_abandoned(Abandoned::Hold);
    flush();
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    flush();
    assert_eq!(store.abandon(&lease, Abandoned::Hold).await.unwrap(), Fence::Passed);
    flush();
    assert_eq!(store.complete(&lease, &Bytes::from_static(b"done")).await.unwrap(), Fence::Passed);
}

/// Fails if a claim, a completion or a replay takes more than one command, and thus more than one
/// round trip.
#[tokio::test(flavor = "multi_thread")]
async fn claim_complete_and_replay_are_one_round_trip_each() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    complete(&store, &Bytes::new()).await.unwrap();
    let held = || request().with_abandoned(Abandoned::Hold);
    assert_eq!(store.claim(&key(), &held()).await.unwrap(), GRANTED);
    let _: () = server.command("CONFIG RESETSTAT");
    let sent =
        || ["set", "eval", "evalsha", "get", "script|load"].map(|command| server.calls(command));
    // Calls from scripts are counted, too: the completion's script calls `SET`.
    let (id, claim) = (key(), request());
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    assert_eq!(sent(), [1, 0, 0, 0, 0]);
    assert_eq!(
        store.complete(&lease(id, &claim), &Bytes::from_static(b"done")).await.unwrap(),
        Fence::Passed
    );
    let by_script = u64::from(!compares_values(&server));
    assert_eq!(sent(), [2, 0, by_script, 0, 0]);
    let replay = ClaimOutcome::Rejected(Rejection::Completed(Bytes::from_static(b"done")));
    assert_eq!(store.claim(&id, &request()).await.unwrap(), replay);
    assert_eq!(sent(), [3, 0, by_script, 0, 0]);
    assert_eq!(store.claim(&key(), &held()).await.unwrap(), GRANTED);
    assert_eq!(sent(), [4, 0, by_script + 1, 0, 0]);
}

/// Fails if a record takes more than one and a half times the bytes of its response.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_at_most_half_larger_than_its_response() {
    const RECORDS: u64 = 5_000;
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let body: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(1024).collect();
    let recording = bytes::Bytes::from(
        Recording::new(201, Vec::new(), RecordedBody::Whole(body.into())).encode(),
    );
    let first = complete(&store, &recording).await.unwrap();
    let used = || server.info("used_memory").unwrap().parse::<u64>().unwrap();
    let before = used();
    for _ in 0..RECORDS {
        complete(&store, &recording).await.unwrap();
    }
    let each = (used() - before) / RECORDS;
    println!("a record with a response of 1 KiB: {each} bytes");
    assert!(each < 1024 * 3 / 2, "{each}");
    assert!(store.look_up(&first).await.unwrap().is_some());
}

/// Fails if a key expires before its record, or never expires although it cannot be held.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_expires_with_its_record_unless_it_can_be_held() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::options().key_prefix("").connect(&server.url()).await.unwrap();
    let ttl = |id: &idempotent_core::RecordId| {
        let mut connection = server.client().get_connection().unwrap();
        redis::cmd("PTTL").arg(id.as_bytes()).query::<i64>(&mut connection).unwrap()
    };
    let day: i64 = 24 * 60 * 60 * 1_000;
    let hour: i64 = 60 * 60 * 1_000;
    let (id, claim) = (key(), request());
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    assert!((day + hour - 5_000..=day + hour).contains(&ttl(&id)));
    assert_eq!(store.complete(&lease(id, &claim), &Bytes::new()).await.unwrap(), Fence::Passed);
    assert!((day - 5_000..=day).contains(&ttl(&id)));

    let (id, claim) = (key(), request().with_abandoned(Abandoned::Hold));
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    assert_eq!(ttl(&id), -1);
    assert_eq!(store.abandon(&lease(id, &claim), Abandoned::Hold).await.unwrap(), Fence::Passed);
    assert_eq!(ttl(&id), -1);
    assert_eq!(store.complete(&lease(id, &claim), &Bytes::new()).await.unwrap(), Fence::Passed);
    assert!((day - 5_000..=day).contains(&ttl(&id)));

    // A key that was claimed under `retry` is held as soon as a request asks for `hold`.
    let (id, claim) = (key(), request().with_lease(Duration::from_millis(1)));
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let hold = request().with_abandoned(Abandoned::Hold);
    assert_eq!(
        store.claim(&id, &hold).await.unwrap(),
        ClaimOutcome::Rejected(Rejection::Held { newly: true, reference: None })
    );
    assert_eq!(ttl(&id), -1);
}

/// Fails if an unreadable record is treated as absent, because the operation would run again.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_is_an_error_in_every_step() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::options().key_prefix("").connect(&server.url()).await.unwrap();
    let (intact, claim) = (key(), request());
    assert_eq!(store.claim(&intact, &claim).await.unwrap(), GRANTED);
    let mut connection = server.client().get_connection().unwrap();
    let value: Vec<u8> = redis::cmd("GET").arg(intact.as_bytes()).query(&mut connection).unwrap();
    let other = |at: usize, byte: u8| {
        let mut other = value.clone();
        other[at] = byte;
        other
    };
    for damaged in
        [Vec::from(*b"x"), value[..82].to_vec(), other(0, 2), other(1, 0), other(1, 9), other(2, 7)]
    {
        let (id, claim) = (key(), request());
        let () = redis::cmd("SET").arg(id.as_bytes()).arg(&damaged).query(&mut connection).unwrap();
        let lease = lease(id, &claim);
        let hold = claim.with_abandoned(Abandoned::Hold);
        let resolution = idempotent_core::protocol::Resolution::Release;
        for error in [
            store.claim(&id, &claim).await.unwrap_err(),
            store.claim(&id, &hold).await.unwrap_err(),
            store.complete(&lease, &Bytes::new()).await.unwrap_err(),
            store.release(&lease).await.unwrap_err(),
            store.abandon(&lease, Abandoned::Hold).await.unwrap_err(),
            store.look_up(&id).await.unwrap_err(),
            store.resolve(&id, &claim.owner, &resolution, &decision(&id)).await.unwrap_err(),
        ] {
            assert!(!error.is_transient(), "{}", describe(&error));
            assert!(describe(&error).contains("cannot be read"), "{}", describe(&error));
        }
        let left: Vec<u8> = redis::cmd("GET").arg(id.as_bytes()).query(&mut connection).unwrap();
        assert_eq!(left, damaged);
    }
}

/// Fails if `check` trusts what the store read when it opened its connections.
#[tokio::test(flavor = "multi_thread")]
async fn a_check_notices_a_setting_that_was_changed() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    store.check().await.unwrap();
    let _: () = server.command("CONFIG SET maxmemory-policy allkeys-lru");
    let error = store.check().await.unwrap_err();
    assert!(!error.is_transient() && describe(&error).contains("`maxmemory-policy`"));
    let _: () = server.command("CONFIG SET maxmemory-policy noeviction");
    store.check().await.unwrap();
}
