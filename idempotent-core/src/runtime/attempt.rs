//! A granted claim, until it ends.

use std::{
    fmt, mem,
    sync::{Arc, OnceLock},
    time::Instant,
};

use super::{
    deferred::SendingEnd, end_action::EndAction, open_claims::OpenClaim, operation::Run,
    parts::RuntimeParts, renewer::LiveLease, verdict::Verdict,
};
use crate::{
    error::StoreError,
    fingerprint::RequestDigest,
    lease::Lease,
    policy::{Abandoned, OnAbandon},
    protocol::Claim,
    record_id::RecordId,
    recording::EncodedRecording,
    store::Transaction,
};

mod commit;
mod end;

/// The outcome of [`Runtime::begin`](super::Runtime::begin): whether the handler of a request may
/// run.
///
/// Exhaustive: a caller must handle both cases.
#[derive(Debug)]
pub enum Admission {
    /// The caller owns the key: run the handler, then end the attempt.
    Proceed(Attempt),
    /// The handler must not run. The response follows from the verdict.
    Rejected(Verdict),
}

/// The right to run an operation once. Its lease is renewed in the background until the attempt
/// ends.
///
/// An attempt ends by [`complete`](Self::complete),
/// [`complete_rolled_back`](Self::complete_rolled_back), [`release`](Self::release) or
/// [`abandon`](Self::abandon). If it is dropped before that, its outcome is unknown and its lease
/// expires, as if the process had died.
///
/// The handler may write in a transaction of the store, which is committed together with the
/// completion: see [`begin_transaction`](Self::begin_transaction),
/// [`Runtime::transaction`](super::Runtime::transaction) and
/// [`Runtime::begin_in_transaction`](super::Runtime::begin_in_transaction).
pub struct Attempt {
    /// Boxed: keeps the futures small that the attempt passes through.
    inner: Box<Inner>,
}

struct Inner {
    parts: Arc<RuntimeParts>,
    lease: Lease,
    claim: Claim,
    digest: RequestDigest,
    number: u32,
    /// When the claim was sent.
    since: Instant,
    operation: Run,
    phase: AttemptPhase,
    effects: Effects,
    /// Set if the claim is part of the transaction. The attempt then has no lease, and the store
    /// knows nothing of it until the transaction is committed.
    open: Option<OpenClaim>,
    /// Set while an end waits for the store's response. It is dropped only after an unfinished end
    /// has been deferred, so that claims of this process always find either the end that is being
    /// sent or the deferred end.
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

enum AttemptPhase {
    Running,
    /// The end is being sent to the store. If the attempt is dropped in this phase, the background
    /// sends the end again. The live lease is absent if the attempt was fenced.
    Ending(EndAction, Option<LiveLease>),
    Ended,
}

/// The outcome of ending an attempt, which decides what its client gets.
///
/// Exhaustive: a caller must handle every outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The store has stored the end. Send the attempt's response.
    Stored,
    /// The store failed to store the end. Send the attempt's response nevertheless: its completion
    /// is retried in the background for as long as its record would last, within the limit of
    /// [`RuntimeOptions::deferred_bytes`](super::RuntimeOptions::deferred_bytes).
    Deferred,
    /// Another attempt has taken over the key, or the store has lost its record. The attempt's
    /// response must not reach its client, which gets the response for this verdict instead. The
    /// verdict is never [`Mismatch`](Verdict::Mismatch), because the handler ran.
    Fenced(Verdict),
    /// The attempt's transaction was not committed, or its outcome is unknown. The attempt's
    /// response must not reach its client. The client can repeat the request to get the outcome.
    NotCommitted {
        /// Whether a repeated request may succeed.
        transient: bool,
    },
    /// The attempt's transaction was not committed, or its handler has ended it, and the key is
    /// held: a repeated request does not run. The attempt's response must not reach its client.
    Held,
}

impl Attempt {
    /// Creates an attempt whose lease is renewed already.
    pub(super) fn new(
        parts: Arc<RuntimeParts>,
        id: RecordId,
        claim: Claim,
        digest: RequestDigest,
        (number, since): (u32, Instant),
        rule: OnAbandon,
    ) -> Self {
        let lease = Lease { id, owner: claim.owner };
        let operation = Run::new(parts.clone(), lease, number, rule);
        let (phase, effects) = (AttemptPhase::Running, Effects::Elsewhere);
        let (open, sending) = (None, OnceLock::new());
        Self {
            inner: Box::new(Inner {
                parts,
                lease,
                claim,
                digest,
                number,
                since,
                operation,
                phase,
                effects,
                open,
                sending,
            }),
        }
    }

    /// Makes this an attempt whose claim is part of the transaction.
    pub(super) fn in_transaction(
        mut self,
        open: OpenClaim,
        transaction: Box<dyn Transaction>,
    ) -> Self {
        self.inner.operation.transaction_begun();
        self.inner.effects = Effects::In(transaction);
        self.inner.open = Some(open);
        self
    }

    /// Returns the id of the claimed record.
    #[must_use]
    pub fn id(&self) -> &RecordId {
        &self.inner.lease.id
    }

    /// Returns the number of the attempt: 1 for the first. From 2 on, an earlier attempt was
    /// abandoned.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// Returns the operation, for the handler.
    #[must_use]
    pub fn operation(&self) -> &Run {
        &self.inner.operation
    }

    /// Begins a transaction for the handler. It is committed when the attempt
    /// [completes](Self::complete), and only then.
    ///
    /// # Errors
    /// Fails if the store has no transactions, or if it fails. Then [release](Self::release) the
    /// attempt, because nothing was done.
    pub async fn begin_transaction(&mut self) -> Result<(), StoreError> {
        self.inner.effects = Effects::In(self.inner.parts.store.begin_transaction().await?);
        self.inner.operation.transaction_begun();
        Ok(())
    }

    /// Takes the transaction, if there is one, to pass it to the handler. The attempt can complete
    /// only after the transaction was [returned](Self::return_transaction).
    pub fn take_transaction(&mut self) -> Option<Box<dyn Transaction>> {
        match mem::replace(&mut self.inner.effects, Effects::WithHandler) {
            Effects::In(transaction) => Some(transaction),
            effects @ (Effects::Elsewhere | Effects::WithHandler) => {
                self.inner.effects = effects;
                None
            }
        }
    }

    /// Gives back the transaction that was [taken](Self::take_transaction), or sets the
    /// [transaction](super::Runtime::transaction) that the handler has used.
    pub fn return_transaction(&mut self, transaction: Box<dyn Transaction>) {
        self.inner.effects = Effects::In(transaction);
    }

    /// Completes the attempt with a recorded response, and commits its transaction if there is one.
    ///
    /// # Cancel safety
    /// If the future is dropped after it was polled, the end is stored in the background, as after
    /// a failure of the store. If the attempt has a transaction, it is then unknown whether the
    /// transaction was committed; if it was not, the attempt is abandoned.
    pub async fn complete(mut self, recording: impl Into<EncodedRecording>) -> AttemptOutcome {
        self.inner.operation.end();
        let action = EndAction::Complete(recording.into());
        match mem::replace(&mut self.inner.effects, Effects::Elsewhere) {
            Effects::Elsewhere => self.inner.end(action).await,
            // Boxed: keeps the future small for attempts without a transaction.
            Effects::In(transaction) => Box::pin(self.inner.commit(transaction, action)).await,
            Effects::WithHandler => Box::pin(self.inner.end_without_transaction()).await,
        }
    }

    /// Completes the attempt with a recorded response, but rolls back the writes of its
    /// transaction. Use it for a response that reports a failure.
    ///
    /// # Cancel safety
    /// As for [`complete`](Self::complete).
    pub async fn complete_rolled_back(
        mut self,
        recording: impl Into<EncodedRecording>,
    ) -> AttemptOutcome {
        self.inner.operation.end();
        self.inner.end_without_effects(EndAction::Complete(recording.into())).await
    }

    /// Releases the key because nothing was done: the next request runs as the first. The writes of
    /// the attempt's transaction are rolled back.
    ///
    /// If an earlier attempt was abandoned, or a [step](Run::step) of this attempt has begun,
    /// part of the operation may have been done. The record then stays, and the next request takes
    /// over the key as the next attempt, or the key is held after the point of no return.
    ///
    /// # Cancel safety
    /// As for [`complete`](Self::complete).
    pub async fn release(mut self) -> AttemptOutcome {
        self.inner.operation.end();
        let action = if self.inner.number > 1 || self.inner.operation.has_begun() {
            EndAction::Abandon(Abandoned::Retry)
        } else {
            EndAction::Release
        };
        self.inner.end_without_effects(action).await
    }

    /// Abandons the attempt, because its outcome is unknown: the next request takes over the key at
    /// once, or the key is held. The writes of the attempt's transaction are rolled back.
    ///
    /// # Cancel safety
    /// As for [`complete`](Self::complete).
    pub async fn abandon(mut self, policy: Abandoned) -> AttemptOutcome {
        self.inner.operation.end();
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
