//! Histories: what the store appends to them, and what the runtime does.

use crate::{
    conformance::fixture::{Fixture, granted, recording, text},
    history::{History, Kind},
    policy::Abandoned,
    protocol::{Fence, Note, Resolution, ResolveOutcome},
    store::TransactionClaim,
};

pub(in crate::conformance) async fn a_history_tells_of_each_attempt_and_of_its_end(
    fixture: Fixture,
) {
    let key = fixture.key();
    let first = key.claimed(fixture.request()).await;
    assert_eq!(key.kinds().await, [Kind::Claimed]);
    key.abandon(&first, Abandoned::Retry).await;
    assert_eq!(key.kinds().await, [Kind::Claimed, Kind::Abandoned]);
    let second = fixture.request();
    assert_eq!(key.claim(&second).await, granted(2));
    fixture.expire_leases().await;
    // Another attempt finds the lease expired, and its policy is to hold the key.
    key.claim(&fixture.hold_request()).await;
    let kinds = [Kind::Claimed, Kind::Abandoned, Kind::TakenOver, Kind::Held];
    assert_eq!(key.kinds().await, kinds);
    let late = key.complete(&key.lease(second.owner), &recording("late")).await;
    assert_eq!(late, Fence::Passed);
    assert_eq!(key.kinds().await, [&kinds[..], &[Kind::Completed]].concat());
    let record = key.record().await.unwrap();
    let entries: Vec<_> = record.history.entries().collect();
    assert!(entries.is_sorted_by_key(|entry| entry.at), "{entries:?}");
    assert_eq!(entries.first().map(|entry| entry.at), Some(record.first_seen));
    let last = entries.last().map(|entry| entry.at).unwrap();
    let completed = record.completed_at.unwrap();
    // A statement may read its clock more than once.
    let apart = completed.duration_since(last).max(last.duration_since(completed));
    assert!(apart < fixture.tick() / 2, "{last:?} and {completed:?}");
    let owner = fixture.key();
    let lease = owner.held().await;
    assert_eq!(owner.kinds().await, [Kind::Claimed, Kind::Held]);
    owner.complete(&lease, &recording("known")).await;
    assert_eq!(owner.kinds().await, [Kind::Claimed, Kind::Held, Kind::Completed]);
    let only = fixture.key();
    only.completed(&recording("done")).await;
    let later = only.append_history(Kind::Deferred).await.map(|()| Kind::Deferred);
    let kinds: Vec<_> = [Kind::Claimed, Kind::Completed].into_iter().chain(later).collect();
    assert_eq!(only.kinds().await, kinds);
}

pub(in crate::conformance) async fn a_history_tells_what_an_operator_has_decided(fixture: Fixture) {
    let key = fixture.key();
    let lease = key.held().await;
    let known = Resolution::Complete(recording("known"));
    assert_eq!(key.resolve(&lease.owner, known).await, ResolveOutcome::Resolved);
    assert_eq!(key.kinds().await, [Kind::Claimed, Kind::Held, Kind::Resolved]);
    let released = fixture.key();
    let lease = released.held().await;
    released.resolve(&lease.owner, Resolution::Release).await;
    released.claimed(fixture.request()).await;
    assert_eq!(released.kinds().await, [Kind::Claimed]);
}

pub(in crate::conformance) async fn a_history_starts_with_the_first_claim(fixture: Fixture) {
    let (released, expired) = (fixture.key(), fixture.key());
    let lease = released.claimed(fixture.request()).await;
    released.release(&lease).await;
    expired.completed(&recording("old")).await;
    fixture.expire_records().await;
    for key in [released, expired] {
        key.claimed(fixture.request()).await;
        assert_eq!(key.kinds().await, [Kind::Claimed]);
    }
}

pub(in crate::conformance) async fn a_history_keeps_its_latest_entries(fixture: Fixture) {
    let key = fixture.key();
    let mut lease = key.claimed(fixture.request()).await;
    let mut expected = vec![Kind::Claimed];
    for attempt in 2..12 {
        key.abandon(&lease, Abandoned::Retry).await;
        let claim = fixture.request();
        assert_eq!(key.claim(&claim).await, granted(attempt));
        lease = key.lease(claim.owner);
        expected.extend([Kind::Abandoned, Kind::TakenOver]);
    }
    let latest = expected.split_off(expected.len() - History::MAX_ENTRIES);
    assert_eq!(key.kinds().await, latest);
    if key.append_history(Kind::Deferred).await.is_some() {
        let later: Vec<_> = latest.into_iter().skip(1).chain([Kind::Deferred]).collect();
        assert_eq!(key.kinds().await, later);
    }
}

/// Until it is purged, the record is there, and can become valid again.
pub(in crate::conformance) async fn an_entry_is_appended_to_an_expired_record(fixture: Fixture) {
    let key = fixture.key();
    key.claimed(fixture.request()).await;
    fixture.expire_records().await;
    if key.append_history(Kind::Deferred).await.is_some() && fixture.set_back(1).await {
        assert_eq!(key.kinds().await, [Kind::Claimed, Kind::Deferred]);
    }
}

pub(in crate::conformance) async fn what_changes_nothing_has_no_entry(fixture: Fixture) {
    let key = fixture.key();
    let claim = fixture.request();
    let lease = key.claimed(&claim).await;
    assert_eq!(key.claim(&claim).await, granted(1));
    key.claim(&fixture.request()).await;
    key.claim(&fixture.other_request()).await;
    key.renew(&lease, fixture.tick()).await;
    key.note(&lease, &Note::reference(text("re_1"))).await;
    key.assert_fenced(fixture.request().owner).await;
    assert_eq!(key.kinds().await, [Kind::Claimed]);
    key.complete(&lease, &recording("done")).await;
    key.complete(&lease, &recording("again")).await;
    key.claim(&fixture.request()).await;
    key.resolve(&lease.owner, Resolution::Release).await;
    assert_eq!(key.kinds().await, [Kind::Claimed, Kind::Completed]);
    // There is no record.
    fixture.key().append_history(Kind::Fenced).await;
}

pub(in crate::conformance) async fn a_history_is_that_of_the_committed_transaction(
    fixture: Fixture,
) {
    let Some(transactions) = fixture.store().transactions() else { return };
    let key = fixture.key();
    let lease = key.claimed(fixture.request()).await;
    let mut transaction = transactions.begin().await.unwrap();
    transaction.complete(&lease, &recording("rolled back")).await.unwrap();
    transaction.roll_back().await;
    assert_eq!(key.kinds().await, [Kind::Claimed]);
    let transaction = transactions.begin().await.unwrap();
    transaction.complete_and_commit(&lease, &recording("done")).await.unwrap();
    assert_eq!(key.kinds().await, [Kind::Claimed, Kind::Completed]);

    let (noted, plain, taken_over) = (fixture.key(), fixture.key(), fixture.key());
    let first = taken_over.claimed(fixture.request()).await;
    taken_over.abandon(&first, Abandoned::Retry).await;
    for (key, note) in [(&noted, true), (&plain, false), (&taken_over, false)] {
        let claim = fixture.request();
        let claimed = transactions.claim(&key.id, &claim, fixture.tick()).await.unwrap();
        let TransactionClaim::Granted { mut transaction, .. } = claimed else {
            unreachable!("the key is free: {claimed:?}");
        };
        let lease = key.lease(claim.owner);
        if note {
            transaction.note(&lease, &Note::reference(text("re_1"))).await.unwrap();
        }
        transaction.complete_and_commit(&lease, &recording("done")).await.unwrap();
    }
    for key in [noted, plain] {
        assert_eq!(key.kinds().await, [Kind::Claimed, Kind::Completed]);
    }
    let kinds = [Kind::Claimed, Kind::Abandoned, Kind::TakenOver, Kind::Completed];
    assert_eq!(taken_over.kinds().await, kinds);
}
