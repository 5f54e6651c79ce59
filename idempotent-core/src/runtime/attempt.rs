//! A granted claim, until it ends.

use std::{
    fmt, mem,
    sync::{Arc, OnceLock},
    time::Instant,
};

use super::{
    deferred::SendingEnd, end_action::EndAction, open_transactions::OpenTransaction, parts::Parts,
    renewer::LiveLease, verdict::Verdict,
};
use crate::{
    error::StoreError, fingerprint::RequestDigest, lease::Lease, policy::Abandoned,
    protocol::Claim, record_id::RecordId, recording::EncodedRecording, store::Transaction,
};

mod commit;
mod end;

/// The outcome of a request before its handler runs.
///
/// Exhaustive: a caller must handle both cases.
#[derive(Debug)]
pub enum Admission {
    /// The caller owns the key: run the handler, then end the attempt.
    Proceed(Attempt),
    /// The handler must not run.
    Rejected(Verdict),
}

/// The right to run an operation once. Its lease is renewed until the attempt ends.
///
/// The outcome of an attempt that is dropped without an end is unknown: its lease expires, as if
/// the process had died.
///
/// The handler may write through a [transaction](Self::begin_transaction), which is committed
/// together with the attempt's completion.
pub struct Attempt {
    /// Boxed: keeps the futures small that the attempt passes through.
    inner: Box<Inner>,
}

struct Inner {
    parts: Arc<Parts>,
    lease: Lease,
    claim: Claim,
    digest: RequestDigest,
    number: u32,
    /// When the claim was sent.
    since: Instant,
    phase: Phase,
    effects: Effects,
    /// Set if the claim is part of the transaction: then there is no lease, and the store has
    /// nothing of the attempt unless the transaction is committed.
    open: Option<OpenTransaction>,
    /// Set while an end waits for the store's response. It is dropped only after an unfinished end
    /// has been deferred, so that claims of this process always find one of the two.
    sending: OnceLock<SendingEnd>,
}

/// Where the handler writes.
enum Effects {
    /// Outside of the store's transactions.
    Elsewhere,
    /// In a transaction.
    In(Box<dyn Transaction>),
    /// In a transaction that the handler has taken.
    WithHandler,
}

enum Phase {
    Running,
    /// The end is being sent to the store. An attempt that is dropped in this phase leaves the rest
    /// to the background. The live lease is absent if it was fenced.
    Ending(EndAction, Option<LiveLease>),
    Ended,
}

/// The outcome of ending an attempt.
///
/// Exhaustive: each outcome decides what the client gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The store has the end.
    Stored,
    /// The store failed. The attempt's response counts, and its completion is retried in the
    /// background for as long as its record would last, within the limit of
    /// [`RuntimeOptions::deferred_bytes`](super::RuntimeOptions::deferred_bytes).
    Deferred,
    /// Another attempt took the key over. The attempt's response must not reach its client, which
    /// gets the response for this verdict instead.
    Fenced(Verdict),
    /// The attempt's transaction was not committed, or its outcome is unknown. The attempt's
    /// response must not reach its client, which may repeat the request to learn the outcome.
    NotCommitted {
        /// Whether a repeated request may succeed.
        transient: bool,
    },
}

impl Attempt {
    /// Creates an attempt whose lease is renewed already.
    pub(super) fn new(
        parts: Arc<Parts>,
        lease: Lease,
        claim: Claim,
        digest: RequestDigest,
        number: u32,
        since: Instant,
    ) -> Self {
        let (phase, effects) = (Phase::Running, Effects::Elsewhere);
        let (open, sending) = (None, OnceLock::new());
        let inner =
            Inner { parts, lease, claim, digest, number, since, phase, effects, open, sending };
        Self { inner: Box::new(inner) }
    }

    /// Makes this an attempt whose claim is part of the transaction.
    pub(super) fn in_transaction(
        mut self,
        open: OpenTransaction,
        transaction: Box<dyn Transaction>,
    ) -> Self {
        self.inner.effects = Effects::In(transaction);
        self.inner.open = Some(open);
        self
    }

    /// Returns the id of the claimed record.
    #[must_use]
    pub fn id(&self) -> &RecordId {
        &self.inner.lease.id
    }

    /// Returns the number of the attempt: 1 for the first; from 2 on, an earlier one was abandoned.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// Begins a transaction for the handler, which is committed when the attempt
    /// [completes](Self::complete), and only then.
    ///
    /// # Errors
    /// Fails if the store has no transactions, or fails. [Release](Self::release) the attempt then:
    /// nothing was done.
    pub async fn begin_transaction(&mut self) -> Result<(), StoreError> {
        self.inner.effects = Effects::In(self.inner.parts.store.begin_transaction().await?);
        Ok(())
    }

    /// Takes the transaction out for the handler, if there is one. The attempt cannot complete
    /// unless it is [returned](Self::return_transaction).
    pub fn take_transaction(&mut self) -> Option<Box<dyn Transaction>> {
        match mem::replace(&mut self.inner.effects, Effects::WithHandler) {
            Effects::In(transaction) => Some(transaction),
            effects @ (Effects::Elsewhere | Effects::WithHandler) => {
                self.inner.effects = effects;
                None
            }
        }
    }

    /// Returns the transaction that was [taken](Self::take_transaction).
    pub fn return_transaction(&mut self, transaction: Box<dyn Transaction>) {
        self.inner.effects = Effects::In(transaction);
    }

    /// Completes the attempt with a recorded response, and commits its transaction.
    ///
    /// # Cancel safety
    /// If the future is dropped after it was polled, the end is stored in the background, as after
    /// a failure of the store. With a transaction it is then unknown whether it was committed; if
    /// it was not, the attempt is abandoned.
    pub async fn complete(mut self, recording: impl Into<EncodedRecording>) -> AttemptOutcome {
        let action = EndAction::Complete(recording.into().into());
        match mem::replace(&mut self.inner.effects, Effects::Elsewhere) {
            Effects::Elsewhere => self.inner.end(action).await,
            // Boxed: keeps the future small for attempts without a transaction.
            Effects::In(transaction) => Box::pin(self.inner.commit(transaction, action)).await,
            Effects::WithHandler => Box::pin(self.inner.end_without_transaction()).await,
        }
    }

    /// Completes the attempt with a recorded response, and rolls back the writes of its
    /// transaction.
    ///
    /// # Cancel safety
    /// As for [`complete`](Self::complete).
    pub async fn complete_rolled_back(
        mut self,
        recording: impl Into<EncodedRecording>,
    ) -> AttemptOutcome {
        self.inner.end_without_effects(EndAction::Complete(recording.into().into())).await
    }

    /// Releases the key: nothing was done, and the next request runs as the first.
    ///
    /// If an earlier attempt was abandoned, its outcome is still unknown: the record stays, and the
    /// next request takes the key over.
    ///
    /// # Cancel safety
    /// As for [`complete`](Self::complete).
    pub async fn release(mut self) -> AttemptOutcome {
        let action = if self.inner.number > 1 {
            EndAction::Abandon(Abandoned::Retry)
        } else {
            EndAction::Release
        };
        self.inner.end_without_effects(action).await
    }

    /// Abandons the attempt without an outcome: the next request takes the key over at once, or the
    /// key is held. The writes of its transaction are rolled back.
    ///
    /// # Cancel safety
    /// As for [`complete`](Self::complete).
    pub async fn abandon(mut self, policy: Abandoned) -> AttemptOutcome {
        self.inner.end_without_effects(EndAction::Abandon(policy)).await
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("id", self.id())
            .field("number", &self.number())
            .finish_non_exhaustive()
    }
}
