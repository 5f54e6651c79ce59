//! The parts of the conditions of all writes: a test misses each of them.

use std::{collections::BTreeMap, pin::Pin, time::Duration};

use idempotent_core::{
    Abandoned, RecordState, Store as _,
    history::Kind,
    protocol::{Claim, Fence, Note, RenewOutcome, Renewal, Resolution, ResolveOutcome},
    store::Administration as _,
};
use idempotent_dynamodb::internals;
use test_support::{
    decision,
    servers::dynamodb::{Fault, Gate},
};

use super::helpers::{GRANTED, LEASE, Lab, TTL, is_in_flight, key, lease, recording, request};

type Test = fn(Lab) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! tests {
    ($($guard:ident: $test:ident,)+) => {
        /// Each guard with the test that misses it.
        const TESTS: &[(&str, Test)] =
            &[$((stringify!($guard), |lab| Box::pin($test(lab))),)+];
    };
}

tests! {
    CLAIM_NEW: a_second_claim_is_in_flight,
    DECIDED_UNCHANGED: of_two_takeovers_one_is_granted,
    REMOVED_UNCHANGED: a_completion_is_not_released,
    RENEW_OWNER: a_former_owner_does_not_renew,
    RENEW_IN_FLIGHT: a_completed_key_is_not_renewed,
    RENEW_STAYS: a_renewed_claim_stays_in_the_table,
    NOTE_OWNER: a_former_owner_does_not_note,
    NOTE_IN_FLIGHT: a_completed_key_gets_no_note,
    NOTE_ONCE: a_note_whose_response_is_lost_is_added_once,
    COMPLETE_OWNER: a_former_owner_does_not_complete,
    COMPLETE_OPEN: the_first_recording_stays,
    COMPLETE_IN_TIME: a_late_recording_is_replayed,
    RELEASE_OWNER: a_former_owner_does_not_release,
    RELEASE_IN_FLIGHT: a_completed_key_is_not_released,
    ABANDON_OWNER: a_former_owner_does_not_free_the_key,
    ABANDON_IN_FLIGHT: a_completed_key_is_not_freed,
    ABANDON_RETRY: a_key_that_must_be_held_is_not_freed,
    ABANDON_ONCE: an_abandonment_whose_response_is_lost_is_one,
    HOLD_OWNER: a_former_owner_does_not_hold_the_key,
    HOLD_IN_FLIGHT: a_completed_key_is_not_held,
    APPEND_EXISTS: an_absent_record_gets_no_history,
    APPEND_ONCE: an_entry_whose_response_is_lost_is_appended_once,
    APPEND_ROOM: a_history_does_not_grow_for_ever,
}

async fn a_second_claim_is_in_flight(lab: Lab) {
    let id = key();
    assert_eq!(lab.store.claim(&id, &request()).await.unwrap(), GRANTED);
    assert!(is_in_flight(&lab.store.claim(&id, &request()).await.unwrap()));
}

async fn of_two_takeovers_one_is_granted(lab: Lab) {
    let first = lab.claimed(&request()).await;
    lab.expire_lease();
    let gate = Gate::default();
    let waiting = gate.clone();
    // The first write of a claim finds the record, the second one takes it over.
    lab.proxy.plan(move |number, _| (number == 1).then(|| Fault::Waits(waiting.clone())));
    // Within its time limit.
    let store = lab.store.clone();
    let slow = tokio::spawn(async move { store.claim(&first.id, &request()).await.unwrap() });
    gate.arrived().await;
    let fast = lab.direct.claim(&first.id, &request()).await.unwrap();
    gate.open();
    let outcomes = [fast, slow.await.unwrap()];
    assert_eq!(outcomes.iter().filter(|outcome| is_in_flight(outcome)).count(), 1, "{outcomes:?}");
}

async fn a_completion_is_not_released(lab: Lab) {
    let held = lab.claimed(&request()).await;
    lab.store.abandon(&held, Abandoned::Hold).await.unwrap();
    let gate = Gate::default();
    let waiting = gate.clone();
    lab.proxy.plan(move |_, action| {
        (action == "TransactWriteItems").then(|| Fault::Waits(waiting.clone()))
    });
    let store = lab.store.clone();
    let resolved = tokio::spawn(async move {
        let audit = decision(&held.id);
        store.resolve(&held.id, &held.owner, &Resolution::Release, &audit).await.unwrap()
    });
    gate.arrived().await;
    let completed = lab.direct.complete(&held, &recording("late")).await.unwrap();
    lab.proxy.clear();
    gate.open();
    assert_eq!((completed, resolved.await.unwrap()), (Fence::Passed, ResolveOutcome::Conflict));
    assert_eq!(lab.replay(&held).await, recording("late"));
}

async fn a_former_owner_does_not_renew(lab: Lab) {
    let [former, _] = lab.taken_over().await;
    let renewed = lab.store.renew(&[Renewal::new(former, LEASE)]).await.unwrap();
    assert_eq!(renewed, [RenewOutcome::Fenced]);
}

async fn a_completed_key_is_not_renewed(lab: Lab) {
    let done = lab.completed(&recording("done")).await.unwrap();
    let renewed = lab.store.renew(&[Renewal::new(done, LEASE)]).await.unwrap();
    assert_eq!(renewed, [RenewOutcome::Fenced]);
}

async fn a_renewed_claim_stays_in_the_table(lab: Lab) {
    let claim = request();
    let claimed = lab.claimed(&claim).await;
    let extended = TTL + Duration::from_secs(3 * 3600);
    let renewed = lab.store.renew(&[Renewal::new(claimed, extended)]).await.unwrap();
    assert_eq!(renewed, [RenewOutcome::Renewed]);
    // An hour after the ttl, the table removes what may go.
    lab.advance(TTL + Duration::from_secs(2 * 3600));
    assert_eq!(internals::expire(&lab.direct, 10).await.unwrap(), 0);
    assert!(is_in_flight(&lab.store.claim(&claimed.id, &request()).await.unwrap()));
}

async fn a_former_owner_does_not_note(lab: Lab) {
    let [former, owner] = lab.taken_over().await;
    let note = Note::step(recording("step"));
    assert_eq!(lab.store.note(&former, &note).await.unwrap(), Fence::Fenced);
    assert!(record(&lab, &owner).await.notes.steps.is_empty());
}

async fn a_completed_key_gets_no_note(lab: Lab) {
    let done = lab.completed(&recording("done")).await.unwrap();
    let note = Note::step(recording("step"));
    assert_eq!(lab.store.note(&done, &note).await.unwrap(), Fence::Fenced);
}

async fn a_note_whose_response_is_lost_is_added_once(lab: Lab) {
    let claimed = lab.claimed(&request()).await;
    lab.proxy.plan(|number, _| (number == 0).then_some(Fault::LostResponse));
    let note = Note::step(recording("step"));
    assert_eq!(lab.store.note(&claimed, &note).await.unwrap(), Fence::Passed);
    assert_eq!(record(&lab, &claimed).await.notes.steps, recording("step"));
}

async fn a_former_owner_does_not_complete(lab: Lab) {
    let [former, owner] = lab.taken_over().await;
    let completed = lab.store.complete(&former, &recording("stale")).await.unwrap();
    assert_eq!(completed, Fence::Fenced);
    assert_eq!(record(&lab, &owner).await.state, RecordState::InFlight);
}

async fn the_first_recording_stays(lab: Lab) {
    let done = lab.completed(&recording("first")).await.unwrap();
    let again = lab.store.complete(&done, &recording("second")).await.unwrap();
    assert_eq!(again, Fence::Passed);
    assert_eq!(lab.replay(&done).await, recording("first"));
}

async fn a_late_recording_is_replayed(lab: Lab) {
    let claimed = lab.claimed(&request()).await;
    lab.advance(TTL * 2);
    let completed = lab.store.complete(&claimed, &recording("late")).await.unwrap();
    assert_eq!(completed, Fence::Passed);
    assert_eq!(lab.replay(&claimed).await, recording("late"));
}

async fn a_former_owner_does_not_release(lab: Lab) {
    let [former, owner] = lab.taken_over().await;
    assert_eq!(lab.store.release(&former).await.unwrap(), Fence::Fenced);
    assert_eq!(record(&lab, &owner).await.owner, owner.owner);
}

async fn a_completed_key_is_not_released(lab: Lab) {
    let done = lab.completed(&recording("done")).await.unwrap();
    assert_eq!(lab.store.release(&done).await.unwrap(), Fence::Fenced);
    assert_eq!(lab.replay(&done).await, recording("done"));
}

async fn a_former_owner_does_not_free_the_key(lab: Lab) {
    let [former, _] = lab.taken_over().await;
    let abandoned = lab.store.abandon(&former, Abandoned::Retry).await.unwrap();
    assert_eq!(abandoned, Fence::Fenced);
    assert!(is_in_flight(&lab.store.claim(&former.id, &request()).await.unwrap()));
}

async fn a_completed_key_is_not_freed(lab: Lab) {
    let done = lab.completed(&recording("done")).await.unwrap();
    let abandoned = lab.store.abandon(&done, Abandoned::Retry).await.unwrap();
    assert_eq!(abandoned, Fence::Fenced);
}

async fn a_key_that_must_be_held_is_not_freed(lab: Lab) {
    let claim: Claim = request().with_abandoned(Abandoned::Hold);
    let claimed = lab.claimed(&claim).await;
    let abandoned = lab.store.abandon(&claimed, Abandoned::Retry).await.unwrap();
    assert_eq!(abandoned, Fence::Passed);
    assert_eq!(record(&lab, &claimed).await.state, RecordState::Held);
}

async fn an_abandonment_whose_response_is_lost_is_one(lab: Lab) {
    let claimed = lab.claimed(&request()).await;
    lab.proxy.plan(|number, _| (number == 0).then_some(Fault::LostResponse));
    let abandoned = lab.store.abandon(&claimed, Abandoned::Retry).await.unwrap();
    assert_eq!(abandoned, Fence::Passed);
    let length = internals::history_length(&lab.direct, &claimed.id).await.unwrap();
    assert_eq!(length, 2);
}

async fn a_former_owner_does_not_hold_the_key(lab: Lab) {
    let [former, owner] = lab.taken_over().await;
    assert_eq!(lab.store.abandon(&former, Abandoned::Hold).await.unwrap(), Fence::Fenced);
    assert_eq!(record(&lab, &owner).await.state, RecordState::InFlight);
}

async fn a_completed_key_is_not_held(lab: Lab) {
    let done = lab.completed(&recording("done")).await.unwrap();
    assert_eq!(lab.store.abandon(&done, Abandoned::Hold).await.unwrap(), Fence::Fenced);
    assert_eq!(lab.replay(&done).await, recording("done"));
}

async fn an_absent_record_gets_no_history(lab: Lab) {
    let id = key();
    lab.store.append_history(&id, Kind::Fenced).await.unwrap();
    assert_eq!(lab.store.claim(&id, &request()).await.unwrap(), GRANTED);
}

async fn an_entry_whose_response_is_lost_is_appended_once(lab: Lab) {
    let claimed = lab.claimed(&request()).await;
    lab.proxy.plan(|number, _| (number == 0).then_some(Fault::LostResponse));
    lab.store.append_history(&claimed.id, Kind::Fenced).await.unwrap();
    let length = internals::history_length(&lab.direct, &claimed.id).await.unwrap();
    assert_eq!(length, 2);
}

async fn a_history_does_not_grow_for_ever(lab: Lab) {
    let claimed = lab.claimed(&request()).await;
    for _ in 0..50 {
        lab.store.append_history(&claimed.id, Kind::Fenced).await.unwrap();
    }
    let length = internals::history_length(&lab.direct, &claimed.id).await.unwrap();
    assert!((16..=32).contains(&length), "{length}");
}

async fn record(lab: &Lab, lease: &idempotent_core::Lease) -> idempotent_core::Record {
    lab.direct.look_up(&lease.id).await.unwrap().unwrap().record
}

/// Runs a test on a store without this guard; returns whether the test has passed.
async fn passes(test: Test, without: Option<&'static str>) -> bool {
    let mut lab = Lab::new().await;
    if let Some(guard) = without {
        lab.store = internals::without_guard(&lab.store, guard);
        lab.direct = internals::without_guard(&lab.direct, guard);
    }
    tokio::spawn(async move { test(lab).await }).await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_guard_is_missed_by_its_test() {
    let tests: BTreeMap<_, _> = TESTS.iter().copied().collect();
    assert_eq!(tests.len(), TESTS.len());
    let mut undetected = Vec::new();
    let mut guards = 0;
    for (guard, text) in internals::guards() {
        let test = tests.get(guard).unwrap_or_else(|| panic!("no test misses {guard}: {text}"));
        assert!(passes(*test, None).await, "the test of {guard} fails with all guards");
        if passes(*test, Some(guard)).await {
            undetected.push((guard, text));
        }
        guards += 1;
    }
    assert!(undetected.is_empty(), "of {guards} guards, no test misses {undetected:?}");
    assert_eq!(guards, TESTS.len());
    println!("{guards} guards");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_response_is_lost_is_granted_once() {
    let lab = Lab::new().await;
    let (id, claim) = (key(), request());
    lab.proxy.plan(|number, _| (number == 0).then_some(Fault::LostResponse));
    assert_eq!(lab.store.claim(&id, &claim).await.unwrap(), GRANTED);
    assert!(is_in_flight(&lab.direct.claim(&id, &request()).await.unwrap()));
    let completed = lab.store.complete(&lease(id, &claim), &recording("done")).await.unwrap();
    assert_eq!(completed, Fence::Passed);
}
