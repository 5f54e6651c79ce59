//! What is committed together. A store without transactions has nothing to show here.
//!
//! A store may have one writer at a time: while a transaction is open, the cases only read.

use std::time::Duration;

use bytes::Bytes;

use crate::{
    conformance::bench::{Bench, Key, answer, granted, many},
    policy::Abandoned,
    protocol::{Claim, ClaimOutcome, Fence},
    record::RecordState,
    store::{Transaction, TransactionClaim, Transactions},
};

/// How long a claim waits for another transaction.
const PATIENCE: Duration = Duration::from_millis(100);

/// What a claim within a transaction came to, without the transaction.
async fn told(transactions: &dyn Transactions, key: &Key, claim: &Claim) -> ClaimOutcome {
    match transactions.claim(&key.id, claim, PATIENCE).await.unwrap() {
        TransactionClaim::Granted { attempt, transaction } => {
            transaction.roll_back().await;
            granted(attempt)
        }
        TransactionClaim::Rejected(outcome) => outcome,
    }
}

/// Claims within a transaction, and expects to get this attempt.
async fn within(transactions: &dyn Transactions, key: &Key, claim: &Claim, expected: u32) -> Box<dyn Transaction> {
    let (outcome, transaction) = match transactions.claim(&key.id, claim, PATIENCE).await.unwrap() {
        TransactionClaim::Granted { attempt, transaction } => (granted(attempt), Some(transaction)),
        TransactionClaim::Rejected(outcome) => (outcome, None),
    };
    assert_eq!(outcome, granted(expected));
    transaction.unwrap()
}

pub(in crate::conformance) async fn a_completion_counts_once_its_transaction_is_committed(bench: Bench) {
    let Some(transactions) = bench.store().transactions() else { return };
    let key = bench.key();
    let lease = key.claimed(bench.request()).await;
    let mut transaction = transactions.begin().await.unwrap();
    assert_eq!(transaction.complete(&lease, &answer("done")).await.unwrap(), Fence::Passed);
    assert_eq!(key.record().await.unwrap().state, RecordState::InFlight);
    transaction.commit().await.unwrap();
    assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Completed(answer("done")));
}

pub(in crate::conformance) async fn a_completion_that_is_rolled_back_never_was(bench: Bench) {
    let Some(transactions) = bench.store().transactions() else { return };
    for dropped in [false, true] {
        let key = bench.key();
        let lease = key.claimed(bench.request()).await;
        let before = key.record().await;
        let mut transaction = transactions.begin().await.unwrap();
        assert_eq!(transaction.complete(&lease, &answer("undone")).await.unwrap(), Fence::Passed);
        if dropped {
            drop(transaction)
        } else {
            transaction.roll_back().await;
        }
        assert_eq!(key.record().await, before);
        assert_eq!(key.complete(&lease, &answer("done")).await, Fence::Passed);
        assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Completed(answer("done")));
    }
}

pub(in crate::conformance) async fn a_replaced_owner_is_fenced_in_a_transaction_too(bench: Bench) {
    let Some(transactions) = bench.store().transactions() else { return };
    let key = bench.key();
    let stale = key.claimed(bench.request()).await;
    bench.lapse().await;
    assert_eq!(key.claim(&bench.request()).await, granted(2));
    let before = key.record().await;
    let mut transaction = transactions.begin().await.unwrap();
    assert_eq!(transaction.complete(&stale, &answer("stale")).await.unwrap(), Fence::Fenced);
    assert_eq!(transaction.abandon(&stale, Abandoned::Hold).await.unwrap(), Fence::Fenced);
    transaction.commit().await.unwrap();
    assert_eq!(key.record().await, before);
}

pub(in crate::conformance) async fn a_completion_and_its_commit_are_one_step(bench: Bench) {
    let Some(transactions) = bench.store().transactions() else { return };
    for length in [4, 40_000] {
        let (key, recording) = (bench.key(), Bytes::from(vec![7; length]));
        let stale = key.claimed(bench.request()).await;
        bench.lapse().await;
        let claim = bench.request();
        assert_eq!(key.claim(&claim).await, granted(2));
        let before = key.record().await;
        let transaction = transactions.begin().await.unwrap();
        assert_eq!(transaction.complete_and_commit(&stale, &recording).await.unwrap(), Fence::Fenced);
        assert_eq!(key.record().await, before);
        let transaction = transactions.begin().await.unwrap();
        assert_eq!(transaction.complete_and_commit(&key.lease(claim.owner), &recording).await.unwrap(), Fence::Passed);
        assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Completed(recording));
    }
}

pub(in crate::conformance) async fn a_claim_within_a_transaction_is_seen_once_it_is_committed(bench: Bench) {
    let Some(transactions) = bench.store().transactions() else { return };
    let (key, claim) = (bench.key(), bench.request());
    let mut transaction = within(transactions, &key, &claim, 1).await;
    assert_eq!(key.record().await, None);
    assert_eq!(transaction.complete(&key.lease(claim.owner), &answer("done")).await.unwrap(), Fence::Passed);
    assert_eq!(key.record().await, None);
    transaction.commit().await.unwrap();
    let record = key.record().await.unwrap();
    assert_eq!((record.owner, record.attempt, record.fingerprint), (claim.owner, 1, claim.fingerprint));
    assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Completed(answer("done")));
    assert_eq!(told(transactions, &key, &bench.request()).await, ClaimOutcome::Completed(answer("done")));
    key.assert_mismatch().await;
}

pub(in crate::conformance) async fn a_claim_within_a_transaction_that_is_rolled_back_never_was(bench: Bench) {
    let Some(transactions) = bench.store().transactions() else { return };
    for dropped in [false, true] {
        let key = bench.key();
        let transaction = within(transactions, &key, &bench.request(), 1).await;
        if dropped {
            drop(transaction)
        } else {
            transaction.roll_back().await;
        }
        assert_eq!(key.record().await, None);
        key.claimed(bench.request()).await;
    }
}

pub(in crate::conformance) async fn what_is_undone_leaves_the_claim(bench: Bench) {
    let Some(transactions) = bench.store().transactions() else { return };
    let (key, claim) = (bench.key(), bench.request());
    let lease = key.lease(claim.owner);
    let mut transaction = within(transactions, &key, &claim, 1).await;
    // Undone with the rest: the next one is the first.
    assert_eq!(transaction.complete(&lease, &answer("undone")).await.unwrap(), Fence::Passed);
    transaction.undo().await.unwrap();
    assert_eq!(transaction.complete(&lease, &answer("done")).await.unwrap(), Fence::Passed);
    transaction.commit().await.unwrap();
    assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Completed(answer("done")));
}

pub(in crate::conformance) async fn a_claim_within_a_transaction_can_end_held(bench: Bench) {
    let Some(transactions) = bench.store().transactions() else { return };
    let (key, claim) = (bench.key(), bench.request());
    let mut transaction = within(transactions, &key, &claim, 1).await;
    let lease = key.lease(claim.owner);
    assert_eq!(transaction.abandon(&lease, Abandoned::Hold).await.unwrap(), Fence::Passed);
    transaction.commit().await.unwrap();
    assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Held { newly: false });
    assert_eq!(told(transactions, &key, &bench.request()).await, ClaimOutcome::Held { newly: false });
}

pub(in crate::conformance) async fn a_claim_within_a_transaction_meets_what_is_committed(bench: Bench) {
    let Some(transactions) = bench.store().transactions() else { return };
    let [live, lapsed, held] = [bench.key(), bench.key(), bench.key()];
    for key in [&lapsed, &held] {
        key.claimed(bench.request()).await;
    }
    bench.lapse().await;
    live.claimed(bench.request()).await;
    let before = live.record().await;
    assert!(matches!(told(transactions, &live, &bench.request()).await, ClaimOutcome::InFlight { .. }));
    for key in [&live, &lapsed] {
        let outcome = told(transactions, key, &bench.other_request()).await;
        assert!(matches!(outcome, ClaimOutcome::Mismatch { .. }), "{outcome:?}");
    }
    assert_eq!(live.record().await, before);
    assert_eq!(told(transactions, &held, &bench.hold_request()).await, ClaimOutcome::Held { newly: true });
    assert_eq!(held.record().await.unwrap().state, RecordState::Held);
    let claim = bench.request();
    let mut transaction = within(transactions, &lapsed, &claim, 2).await;
    assert_eq!(transaction.complete(&lapsed.lease(claim.owner), &answer("done")).await.unwrap(), Fence::Passed);
    transaction.commit().await.unwrap();
    assert_eq!(lapsed.claim(&bench.request()).await, ClaimOutcome::Completed(answer("done")));
}

pub(in crate::conformance) async fn a_claim_within_a_transaction_starts_an_expired_key_over(bench: Bench) {
    let Some(transactions) = bench.store().transactions() else { return };
    let key = bench.key();
    let past = key.completed(&answer("past")).await;
    bench.expire().await;
    let claim = bench.other_request();
    let mut transaction = within(transactions, &key, &claim, 1).await;
    assert_eq!(transaction.complete(&past, &answer("stale")).await.unwrap(), Fence::Fenced);
    assert_eq!(transaction.complete(&key.lease(claim.owner), &answer("present")).await.unwrap(), Fence::Passed);
    transaction.commit().await.unwrap();
    assert_eq!(key.claim(&bench.other_request()).await, ClaimOutcome::Completed(answer("present")));
}

pub(in crate::conformance) async fn a_claim_within_a_transaction_never_runs_a_held_key_again(bench: Bench) {
    let Some(transactions) = bench.store().transactions() else { return };
    let [abandoned, expired] = [bench.key(), bench.key()];
    abandoned.held().await;
    // Its owner died, and no claim has come since to hold it.
    expired.claimed(bench.hold_request()).await;
    bench.expire().await;
    for (key, newly) in [(abandoned, false), (expired, true)] {
        assert_eq!(told(transactions, &key, &bench.request()).await, ClaimOutcome::Held { newly });
        assert_eq!(key.record().await.unwrap().state, RecordState::Held);
        assert_eq!(told(transactions, &key, &bench.request()).await, ClaimOutcome::Held { newly: false });
    }
}

pub(in crate::conformance) async fn a_claim_within_a_transaction_that_is_sent_again_is_granted_again(bench: Bench) {
    let Some(transactions) = bench.store().transactions() else { return };
    for lapses in [false, true] {
        let (key, claim) = (bench.key(), bench.request());
        let lease = key.claimed(claim).await;
        if lapses {
            bench.lapse().await;
        } else {
            bench.advance_half_a_tick().await;
        }
        let transaction = within(transactions, &key, &claim, 1).await;
        transaction.commit().await.unwrap();
        let record = key.record().await.unwrap();
        assert_eq!((record.owner, record.attempt, &record.state), (claim.owner, 1, &RecordState::InFlight));
        // A whole lease.
        bench.advance_half_a_tick().await;
        assert!(matches!(key.claim(&bench.request()).await, ClaimOutcome::InFlight { .. }));
        let transaction = within(transactions, &key, &claim, 1).await;
        assert_eq!(transaction.complete_and_commit(&lease, &answer("done")).await.unwrap(), Fence::Passed);
        assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Completed(answer("done")));
    }
}

pub(in crate::conformance) async fn one_of_many_claims_within_transactions_wins(bench: Bench) {
    if bench.store().transactions().is_none() {
        return;
    }
    let key = bench.key();
    let outcomes = many(|| {
        let (bench, key) = (bench.clone(), key.clone());
        async move {
            let (transactions, claim) = (bench.store().transactions().unwrap(), bench.request());
            match transactions.claim(&key.id, &claim, PATIENCE).await.unwrap() {
                TransactionClaim::Granted { mut transaction, .. } => {
                    let lease = key.lease(claim.owner);
                    assert_eq!(transaction.complete(&lease, &answer("done")).await.unwrap(), Fence::Passed);
                    transaction.commit().await.unwrap();
                    None
                }
                TransactionClaim::Rejected(outcome) => Some(outcome),
            }
        }
    })
    .await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_none()).count(), 1, "{outcomes:?}");
    let told = outcomes.iter().flatten();
    for outcome in told {
        assert!(matches!(outcome, ClaimOutcome::InFlight { .. } | ClaimOutcome::Completed(_)), "{outcome:?}");
    }
    assert_eq!(key.claim(&bench.request()).await, ClaimOutcome::Completed(answer("done")));
}
