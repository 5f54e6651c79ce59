//! Claims in transactions. A store without transactions passes every case.
//!
//! A store may have one writer at a time: while a transaction is open, the cases only read.

use std::time::Duration;

use crate::{
    conformance::fixture::{Fixture, KeyUnderTest, granted, many, recording, replay_of},
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence, Rejection},
    record::RecordState,
    store::{Transaction, TransactionClaim, Transactions},
};

/// How long a claim waits for another transaction.
const WAIT: Duration = Duration::from_millis(100);

/// The outcome of a claim in a transaction, which is rolled back.
async fn outcome_of(
    transactions: &dyn Transactions,
    key: &KeyUnderTest,
    claim: &Claim,
) -> ClaimOutcome {
    match transactions.claim(&key.id, claim, WAIT).await.unwrap() {
        TransactionClaim::Granted { attempt, transaction } => {
            transaction.roll_back().await;
            granted(attempt)
        }
        TransactionClaim::Rejected(rejection) => ClaimOutcome::Rejected(rejection),
    }
}

/// Claims a key in a transaction, and expects this attempt to be granted.
async fn claim_in(
    transactions: &dyn Transactions,
    key: &KeyUnderTest,
    claim: &Claim,
    expected: u32,
) -> Box<dyn Transaction> {
    let (outcome, transaction) = match transactions.claim(&key.id, claim, WAIT).await.unwrap() {
        TransactionClaim::Granted { attempt, transaction } => (granted(attempt), Some(transaction)),
        TransactionClaim::Rejected(rejection) => (ClaimOutcome::Rejected(rejection), None),
    };
    assert_eq!(outcome, granted(expected));
    transaction.unwrap()
}

pub(in crate::conformance) async fn a_claim_in_a_transaction_is_seen_once_it_is_committed(
    fixture: Fixture,
) {
    let Some(transactions) = fixture.store().transactions() else { return };
    let (key, claim) = (fixture.key(), fixture.request());
    let mut transaction = claim_in(transactions, &key, &claim, 1).await;
    assert_eq!(key.record().await, None);
    assert_eq!(
        transaction.complete(&key.lease(claim.owner), &recording("done")).await.unwrap(),
        Fence::Passed
    );
    assert_eq!(key.record().await, None);
    transaction.commit().await.unwrap();
    let record = key.record().await.unwrap();
    assert_eq!(
        (record.owner, record.attempt, record.fingerprint),
        (claim.owner, 1, claim.fingerprint)
    );
    assert_eq!(key.claim(&fixture.request()).await, replay_of(recording("done")));
    assert_eq!(
        outcome_of(transactions, &key, &fixture.request()).await,
        replay_of(recording("done"))
    );
    key.assert_mismatch().await;
}

pub(in crate::conformance) async fn a_claim_in_a_transaction_that_is_rolled_back_has_no_effect(
    fixture: Fixture,
) {
    let Some(transactions) = fixture.store().transactions() else { return };
    for dropped in [false, true] {
        let key = fixture.key();
        let transaction = claim_in(transactions, &key, &fixture.request(), 1).await;
        if dropped {
            drop(transaction)
        } else {
            transaction.roll_back().await;
        }
        assert_eq!(key.record().await, None);
        key.claimed(fixture.request()).await;
    }
}

pub(in crate::conformance) async fn an_undo_keeps_the_claim(fixture: Fixture) {
    let Some(transactions) = fixture.store().transactions() else { return };
    let (key, claim) = (fixture.key(), fixture.request());
    let lease = key.lease(claim.owner);
    let mut transaction = claim_in(transactions, &key, &claim, 1).await;
    // The undo covers this completion too, so the next completion is the first.
    assert_eq!(transaction.complete(&lease, &recording("undone")).await.unwrap(), Fence::Passed);
    transaction.undo().await.unwrap();
    assert_eq!(transaction.complete(&lease, &recording("done")).await.unwrap(), Fence::Passed);
    transaction.commit().await.unwrap();
    assert_eq!(key.claim(&fixture.request()).await, replay_of(recording("done")));
}

pub(in crate::conformance) async fn a_claim_in_a_transaction_can_end_held(fixture: Fixture) {
    let Some(transactions) = fixture.store().transactions() else { return };
    let (key, claim) = (fixture.key(), fixture.request());
    let mut transaction = claim_in(transactions, &key, &claim, 1).await;
    let lease = key.lease(claim.owner);
    assert_eq!(transaction.abandon(&lease, Abandoned::Hold).await.unwrap(), Fence::Passed);
    transaction.commit().await.unwrap();
    assert_eq!(
        key.claim(&fixture.request()).await,
        ClaimOutcome::Rejected(Rejection::Held { newly: false, reference: None })
    );
    assert_eq!(
        outcome_of(transactions, &key, &fixture.request()).await,
        ClaimOutcome::Rejected(Rejection::Held { newly: false, reference: None })
    );
}

pub(in crate::conformance) async fn a_claim_in_a_transaction_meets_what_is_committed(
    fixture: Fixture,
) {
    let Some(transactions) = fixture.store().transactions() else { return };
    let [live, expired, held] = [fixture.key(), fixture.key(), fixture.key()];
    for key in [&expired, &held] {
        key.claimed(fixture.request()).await;
    }
    fixture.expire_leases().await;
    live.claimed(fixture.request()).await;
    let before = live.record().await;
    assert!(matches!(
        outcome_of(transactions, &live, &fixture.request()).await,
        ClaimOutcome::Rejected(Rejection::InFlight { .. })
    ));
    for key in [&live, &expired] {
        let outcome = outcome_of(transactions, key, &fixture.other_request()).await;
        assert!(
            matches!(outcome, ClaimOutcome::Rejected(Rejection::Mismatch { .. })),
            "{outcome:?}"
        );
    }
    assert_eq!(live.record().await, before);
    assert_eq!(
        outcome_of(transactions, &held, &fixture.hold_request()).await,
        ClaimOutcome::Rejected(Rejection::Held { newly: true, reference: None })
    );
    assert_eq!(held.record().await.unwrap().state, RecordState::Held);
    let claim = fixture.request();
    let mut transaction = claim_in(transactions, &expired, &claim, 2).await;
    assert_eq!(
        transaction.complete(&expired.lease(claim.owner), &recording("done")).await.unwrap(),
        Fence::Passed
    );
    transaction.commit().await.unwrap();
    assert_eq!(expired.claim(&fixture.request()).await, replay_of(recording("done")));
}

pub(in crate::conformance) async fn a_claim_in_a_transaction_starts_an_expired_key_over(
    fixture: Fixture,
) {
    let Some(transactions) = fixture.store().transactions() else { return };
    let key = fixture.key();
    let past = key.completed(&recording("past")).await;
    fixture.expire_records().await;
    let claim = fixture.other_request();
    let mut transaction = claim_in(transactions, &key, &claim, 1).await;
    assert_eq!(transaction.complete(&past, &recording("stale")).await.unwrap(), Fence::Fenced);
    assert_eq!(
        transaction.complete(&key.lease(claim.owner), &recording("present")).await.unwrap(),
        Fence::Passed
    );
    transaction.commit().await.unwrap();
    assert_eq!(key.claim(&fixture.other_request()).await, replay_of(recording("present")));
}

pub(in crate::conformance) async fn a_claim_in_a_transaction_never_runs_a_held_key_again(
    fixture: Fixture,
) {
    let Some(transactions) = fixture.store().transactions() else { return };
    let [abandoned, expired] = [fixture.key(), fixture.key()];
    abandoned.held().await;
    // Its owner died, and no later claim has put the key on hold.
    expired.claimed(fixture.hold_request()).await;
    fixture.expire_records().await;
    for (key, newly) in [(abandoned, false), (expired, true)] {
        assert_eq!(
            outcome_of(transactions, &key, &fixture.request()).await,
            ClaimOutcome::Rejected(Rejection::Held { newly, reference: None })
        );
        assert_eq!(key.record().await.unwrap().state, RecordState::Held);
        assert_eq!(
            outcome_of(transactions, &key, &fixture.request()).await,
            ClaimOutcome::Rejected(Rejection::Held { newly: false, reference: None })
        );
    }
}

pub(in crate::conformance) async fn a_claim_in_a_transaction_that_is_sent_again_is_granted_again(
    fixture: Fixture,
) {
    let Some(transactions) = fixture.store().transactions() else { return };
    for expires in [false, true] {
        let (key, claim) = (fixture.key(), fixture.request());
        let lease = key.claimed(&claim).await;
        if expires {
            fixture.expire_leases().await;
        } else {
            fixture.advance_half_a_tick().await;
        }
        let transaction = claim_in(transactions, &key, &claim, 1).await;
        transaction.commit().await.unwrap();
        let record = key.record().await.unwrap();
        assert_eq!(
            (record.owner, record.attempt, &record.state),
            (claim.owner, 1, &RecordState::InFlight)
        );
        // The lease is a whole one.
        fixture.advance_half_a_tick().await;
        assert!(matches!(
            key.claim(&fixture.request()).await,
            ClaimOutcome::Rejected(Rejection::InFlight { .. })
        ));
        let transaction = claim_in(transactions, &key, &claim, 1).await;
        assert_eq!(
            transaction.complete_and_commit(&lease, &recording("done")).await.unwrap(),
            Fence::Passed
        );
        assert_eq!(key.claim(&fixture.request()).await, replay_of(recording("done")));
    }
}

pub(in crate::conformance) async fn one_of_many_claims_in_transactions_wins(fixture: Fixture) {
    if fixture.store().transactions().is_none() {
        return;
    }
    let key = fixture.key();
    let outcomes = many(|| {
        let (fixture, key) = (fixture.clone(), key.clone());
        async move {
            let (transactions, claim) =
                (fixture.store().transactions().unwrap(), fixture.request());
            match transactions.claim(&key.id, &claim, WAIT).await.unwrap() {
                TransactionClaim::Granted { mut transaction, .. } => {
                    let lease = key.lease(claim.owner);
                    assert_eq!(
                        transaction.complete(&lease, &recording("done")).await.unwrap(),
                        Fence::Passed
                    );
                    transaction.commit().await.unwrap();
                    None
                }
                TransactionClaim::Rejected(rejection) => Some(rejection),
            }
        }
    })
    .await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_none()).count(), 1, "{outcomes:?}");
    let rejected = outcomes.iter().flatten();
    for outcome in rejected {
        assert!(
            matches!(outcome, Rejection::InFlight { .. } | Rejection::Completed(_)),
            "{outcome:?}"
        );
    }
    assert_eq!(key.claim(&fixture.request()).await, replay_of(recording("done")));
}
