//! Transactions. A store without transactions passes every case.
//!
//! A store may have one writer at a time: while a transaction is open, the cases only read.

use bytes::Bytes;

use crate::{
    conformance::fixture::{Fixture, granted, recording, replay_of, text},
    policy::Abandoned,
    protocol::{ClaimOutcome, Fence, Note, Rejection},
    record::RecordState,
};

pub(in crate::conformance) async fn a_completion_counts_once_its_transaction_is_committed(
    fixture: Fixture,
) {
    let Some(transactions) = fixture.store().transactions() else { return };
    let key = fixture.key();
    let lease = key.claimed(fixture.request()).await;
    let mut transaction = transactions.begin().await.unwrap();
    assert_eq!(transaction.complete(&lease, &recording("done")).await.unwrap(), Fence::Passed);
    assert_eq!(key.record().await.unwrap().state, RecordState::InFlight);
    transaction.commit().await.unwrap();
    assert_eq!(key.claim(&fixture.request()).await, replay_of(recording("done")));
}

pub(in crate::conformance) async fn a_completion_that_is_rolled_back_has_no_effect(
    fixture: Fixture,
) {
    let Some(transactions) = fixture.store().transactions() else { return };
    for dropped in [false, true] {
        let key = fixture.key();
        let lease = key.claimed(fixture.request()).await;
        let before = key.record().await;
        let mut transaction = transactions.begin().await.unwrap();
        assert_eq!(
            transaction.complete(&lease, &recording("undone")).await.unwrap(),
            Fence::Passed
        );
        if dropped {
            drop(transaction)
        } else {
            transaction.roll_back().await;
        }
        assert_eq!(key.record().await, before);
        assert_eq!(key.complete(&lease, &recording("done")).await, Fence::Passed);
        assert_eq!(key.claim(&fixture.request()).await, replay_of(recording("done")));
    }
}

pub(in crate::conformance) async fn a_replaced_owner_is_fenced_in_a_transaction_too(
    fixture: Fixture,
) {
    let Some(transactions) = fixture.store().transactions() else { return };
    let key = fixture.key();
    let stale = key.claimed(fixture.request()).await;
    fixture.expire_leases().await;
    assert_eq!(key.claim(&fixture.request()).await, granted(2));
    let before = key.record().await;
    let mut transaction = transactions.begin().await.unwrap();
    assert_eq!(transaction.complete(&stale, &recording("stale")).await.unwrap(), Fence::Fenced);
    assert_eq!(transaction.abandon(&stale, Abandoned::Hold).await.unwrap(), Fence::Fenced);
    transaction.commit().await.unwrap();
    assert_eq!(key.record().await, before);
}

pub(in crate::conformance) async fn a_completion_and_its_commit_are_one_step(fixture: Fixture) {
    let Some(transactions) = fixture.store().transactions() else { return };
    for length in [4, 40_000] {
        let (key, recording) = (fixture.key(), Bytes::from(vec![7; length]));
        let stale = key.claimed(fixture.request()).await;
        fixture.expire_leases().await;
        let claim = fixture.request();
        assert_eq!(key.claim(&claim).await, granted(2));
        let before = key.record().await;
        let transaction = transactions.begin().await.unwrap();
        assert_eq!(
            transaction.complete_and_commit(&stale, &recording).await.unwrap(),
            Fence::Fenced
        );
        assert_eq!(key.record().await, before);
        let transaction = transactions.begin().await.unwrap();
        assert_eq!(
            transaction.complete_and_commit(&key.lease(claim.owner), &recording).await.unwrap(),
            Fence::Passed
        );
        assert_eq!(
            key.claim(&fixture.request()).await,
            ClaimOutcome::Rejected(Rejection::Completed(recording))
        );
    }
}

pub(in crate::conformance) async fn a_note_counts_once_its_transaction_is_committed(
    fixture: Fixture,
) {
    let Some(transactions) = fixture.store().transactions() else { return };
    for commits in [true, false] {
        let key = fixture.key();
        let lease = key.claimed(fixture.request()).await;
        let before = key.record().await.unwrap();
        let mut transaction = transactions.begin().await.unwrap();
        let note = Note { reference: Some(text("pi_1")), ..Note::step(recording("ledger")) };
        assert_eq!(transaction.note(&lease, &note).await.unwrap(), Fence::Passed);
        assert_eq!(key.record().await.unwrap(), before);
        if commits {
            transaction.commit().await.unwrap();
            let notes = key.record().await.unwrap().notes;
            assert_eq!(notes.reference, Some(text("pi_1")));
            assert_eq!(notes.steps, recording("ledger"));
        } else {
            transaction.roll_back().await;
            assert_eq!(key.record().await.unwrap(), before);
        }
    }
}

pub(in crate::conformance) async fn a_note_is_fenced_in_a_transaction_too(fixture: Fixture) {
    let Some(transactions) = fixture.store().transactions() else { return };
    let key = fixture.key();
    let stale = key.claimed(fixture.request()).await;
    fixture.expire_leases().await;
    assert_eq!(key.claim(&fixture.request()).await, granted(2));
    let before = key.record().await;
    let mut transaction = transactions.begin().await.unwrap();
    let note = Note::step(recording("stale"));
    assert_eq!(transaction.note(&stale, &note).await.unwrap(), Fence::Fenced);
    transaction.roll_back().await;
    assert_eq!(key.record().await, before);
}
