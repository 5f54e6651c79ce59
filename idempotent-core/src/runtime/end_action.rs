//! The last call to the store for an attempt.

use std::{pin::Pin, time::Duration};

use crate::{
    error::StoreError,
    lease::Lease,
    policy::Abandoned,
    protocol::{Claim, Fence, Rejection},
    recording::EncodedRecording,
    store::{Store, TransactionClaim, commit_if_passed},
};

/// A call to the store that ends an attempt.
type EndCall<'a> = Pin<Box<dyn Future<Output = Result<Fence, StoreError>> + Send + 'a>>;

/// How an attempt ends. It has no `Debug`, since it may contain a response.
#[derive(Clone)]
pub(super) enum EndAction {
    Complete(EncodedRecording),
    Release,
    Abandon(Abandoned),
    /// Undoes a claim that may have been granted, and whose handler never ran.
    GiveBack,
    /// Holds a key that was claimed in a transaction with an unknown end, if that transaction is
    /// committed. Contains another claim of the key, which is granted once the transaction is
    /// rolled back.
    HoldIfCommitted(Box<Claim>),
    /// Holds a key whose handler has ended the transaction of its claim. Contains that claim.
    HoldAgain(Box<Claim>),
}

impl EndAction {
    /// Sends the action to the store. Not an `async fn`, which would wrap the store's future in a
    /// larger one.
    pub(super) fn send<'a>(&'a self, store: &'a dyn Store, lease: &'a Lease) -> EndCall<'a> {
        match self {
            Self::Complete(recording) => store.complete(lease, recording.as_bytes()),
            Self::Release => store.release(lease),
            Self::Abandon(policy) => store.abandon(lease, *policy),
            Self::GiveBack => Box::pin(give_back(store, lease)),
            Self::HoldIfCommitted(probe) => Box::pin(hold_if_committed(store, lease, probe)),
            Self::HoldAgain(claim) => Box::pin(hold_again(store, lease, claim)),
        }
    }

    /// Whether the lease is renewed until the store has the action. A key that is given up must not
    /// be kept alive, since a renewal would revive its lease. A key that is to be held must be, or
    /// the next request would run before the store has it.
    pub(super) fn keeps_lease(&self) -> bool {
        matches!(self, Self::Complete(_) | Self::Abandon(Abandoned::Hold))
    }

    /// The name of the step, as in the errors of stores.
    pub(super) fn step(&self) -> &'static str {
        match self {
            Self::Complete(_) => "complete",
            Self::Release | Self::GiveBack => "release",
            Self::Abandon(_) | Self::HoldIfCommitted(_) | Self::HoldAgain(_) => "abandon",
        }
    }

    pub(super) fn is_completion(&self) -> bool {
        matches!(self, Self::Complete(_))
    }
}

async fn give_back(store: &dyn Store, lease: &Lease) -> Result<Fence, StoreError> {
    match store.look_up(&lease.id).await? {
        // The outcome of the earlier attempts is unknown, so the record stays and may be taken
        // over.
        Some(found) if found.record.attempt > 1 => store.abandon(lease, Abandoned::Retry).await,
        Some(_) | None => store.release(lease).await,
    }
}

/// Claims a key again whose claim has ended with its transaction, and holds it.
async fn hold_again(store: &dyn Store, lease: &Lease, claim: &Claim) -> Result<Fence, StoreError> {
    let Some(transactions) = store.transactions() else { return Ok(Fence::Fenced) };
    let claimed = transactions.claim(&lease.id, claim, Duration::ZERO).await?;
    let mut transaction = match claimed {
        TransactionClaim::Granted { transaction, .. } => transaction,
        // Another attempt may be rolled back.
        TransactionClaim::Rejected(Rejection::InFlight { .. }) => {
            return Err(StoreError::transient("runtime", "hold a key", InDoubt));
        }
        TransactionClaim::Rejected(_) => return Ok(Fence::Fenced),
    };
    let held = transaction.abandon(lease, Abandoned::Hold).await;
    commit_if_passed(transaction, held).await
}

async fn hold_if_committed(
    store: &dyn Store,
    lease: &Lease,
    probe: &Claim,
) -> Result<Fence, StoreError> {
    if store.abandon(lease, Abandoned::Hold).await? == Fence::Passed {
        tracing::error!(
            id = %lease.id.short(), "an operation committed its transaction itself; its key is held"
        );
        return Ok(Fence::Passed);
    }
    let Some(transactions) = store.transactions() else { return Ok(Fence::Fenced) };
    let in_doubt =
        || StoreError::transient("runtime", "read the outcome of a transaction", InDoubt);
    match transactions.claim(&lease.id, probe, Duration::ZERO).await? {
        TransactionClaim::Granted { transaction, .. } => {
            transaction.roll_back().await;
            // Between the abandonment and the claim the transaction may be committed and its lease
            // expire; looking the record up finds that, and the action is repeated.
            let found = store.look_up(&lease.id).await?;
            let ours = found.is_some_and(|found| found.record.owner == lease.owner);
            if ours { Err(in_doubt()) } else { Ok(Fence::Fenced) }
        }
        // The key is in flight in the transaction itself or in another attempt, so whether the
        // transaction has ended is unknown.
        TransactionClaim::Rejected(Rejection::InFlight { .. }) => Err(in_doubt()),
        TransactionClaim::Rejected(_) => Ok(Fence::Fenced),
    }
}

/// A transaction is neither committed nor rolled back yet.
#[derive(Debug, thiserror::Error)]
#[error("the transaction is neither committed nor rolled back yet")]
struct InDoubt;
