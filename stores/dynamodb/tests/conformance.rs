//! The conformance suite, and the comparison with the state machine.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use idempotent_core::{
    RecordId, Store as _,
    conformance::{check, follow, history},
    protocol::{Claim, ClaimOutcome},
};
use idempotent_dynamodb::DynamoDbStore;
use test_support::{
    histories::assert_not_vacuous,
    servers::dynamodb::{Emulator, open, patient, unique_table},
    subjects::dynamodb::ShiftedDynamoDb,
};
use tokio::task::JoinSet;

use super::helpers::{is_in_flight, key, request};

/// A store in a table of its own, which each case creates.
fn subject() -> ShiftedDynamoDb {
    ShiftedDynamoDb::new(&Emulator::shared().unmigrated())
}

/// Fails with the names of the cases that fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms() {
    check(|| async { subject() }).await;
}

/// Two processes learn the time from their own responses. None of them cuts a lease of the other
/// short, and both find in the end that it has expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_lasts_its_length_in_real_time() {
    let (emulator, table) = (Emulator::shared(), unique_table());
    let lease = Duration::from_secs(3);
    let [owner, other] = [(), ()].map(|()| open(emulator.port, &table, patient()));
    owner.migrate().await.unwrap();
    let id = key();
    let claim = request().with_lease(lease);
    let mut granted_since: Option<Instant> = None;
    for attempt in 1..=4 {
        let claiming = if attempt % 2 == 1 { &owner } else { &other };
        let claim = claim.with_owner(request().owner);
        let (outcome, sent) = claimed(claiming, &id, &claim).await;
        assert_eq!(outcome, ClaimOutcome::Granted { attempt });
        // The lease of the attempt before began after its claim was sent.
        let lasted = granted_since.map(|since| since.elapsed());
        assert!(lasted.is_none_or(|lasted| lasted >= lease), "{lasted:?}");
        granted_since = Some(sent);
    }
}

/// Claims a key until it is granted. Returns when that claim was sent.
async fn claimed(store: &DynamoDbStore, id: &RecordId, claim: &Claim) -> (ClaimOutcome, Instant) {
    let began = Instant::now();
    loop {
        let sent = Instant::now();
        let outcome = store.claim(id, claim).await.unwrap();
        if !is_in_flight(&outcome) || began.elapsed() > Duration::from_secs(60) {
            return (outcome, sent);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Fails at the first step at which the store and the state machine differ.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_follows_the_state_machine() {
    let mut following = JoinSet::new();
    for first in [0, 25, 50, 75] {
        following.spawn(async move {
            let mut outcomes = Vec::new();
            for seed in first..first + 25 {
                println!("seed {seed}");
                // In a new table, because each purge reads all of it.
                outcomes.extend(follow(Arc::new(subject()), &history(seed, 100)).await);
            }
            outcomes
        });
    }
    assert_not_vacuous(&following.join_all().await.concat(), 5);
}
