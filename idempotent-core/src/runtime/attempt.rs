//! A granted claim, until it ends.

use std::{
    fmt, mem,
    ops::{Deref, DerefMut},
};

pub use self::attempt_outcome::AttemptOutcome;
pub(super) use self::claimed::{Claimed, Grant};
use self::{claimed::Effects, leased::LeasedAttempt, transactional::TransactionalAttempt};
use super::{end_action::EndAction, open_claims::OpenClaim, operation::Run, verdict::Verdict};
use crate::{
    error::StoreError, policy::Abandoned, record_id::RecordId, recording::EncodedRecording,
    store::Transaction,
};

mod attempt_outcome;
mod claimed;
mod leased;
mod transactional;

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

/// An attempt, by how its key is claimed.
enum Inner {
    ByLease(LeasedAttempt),
    InTransaction(TransactionalAttempt),
}

impl Deref for Inner {
    type Target = Claimed;

    fn deref(&self) -> &Claimed {
        match self {
            Self::ByLease(attempt) => &attempt.claimed,
            Self::InTransaction(attempt) => &attempt.claimed,
        }
    }
}

impl DerefMut for Inner {
    fn deref_mut(&mut self) -> &mut Claimed {
        match self {
            Self::ByLease(attempt) => &mut attempt.claimed,
            Self::InTransaction(attempt) => &mut attempt.claimed,
        }
    }
}

impl Attempt {
    /// Creates an attempt whose lease is renewed already.
    pub(super) fn by_lease(claimed: Claimed) -> Self {
        Self { inner: Box::new(Inner::ByLease(LeasedAttempt::new(claimed))) }
    }

    /// Creates an attempt whose claim is part of the transaction.
    pub(super) fn in_transaction(
        claimed: Claimed,
        open: OpenClaim,
        transaction: Box<dyn Transaction>,
    ) -> Self {
        let attempt = TransactionalAttempt::new(claimed, open, transaction);
        Self { inner: Box::new(Inner::InTransaction(attempt)) }
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
        let transaction = self.inner.parts.store.begin_transaction().await?;
        self.inner.begun(transaction);
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

    /// Notes that the handler has kept the transaction, so that the attempt cannot complete.
    pub(super) fn lose_transaction(&mut self) {
        self.inner.effects = Effects::WithHandler;
    }

    /// Completes the attempt with a recorded response, and commits its transaction if there is one.
    ///
    /// # Cancel safety
    /// If the future is dropped after it was polled, the end is stored in the background, as after
    /// a failure of the store. If the attempt has a transaction, it is then unknown whether the
    /// transaction was committed; if it was not, the attempt is abandoned.
    pub fn complete(
        self,
        recording: impl Into<EncodedRecording>,
    ) -> impl Future<Output = AttemptOutcome> {
        self.end(EndAction::Complete(recording.into()), true)
    }

    /// Completes the attempt with a recorded response, but rolls back the writes of its
    /// transaction. Use it for a response that reports a failure.
    ///
    /// # Cancel safety
    /// As for [`complete`](Self::complete).
    pub fn complete_rolled_back(
        self,
        recording: impl Into<EncodedRecording>,
    ) -> impl Future<Output = AttemptOutcome> {
        self.end(EndAction::Complete(recording.into()), false)
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
    pub fn release(self) -> impl Future<Output = AttemptOutcome> {
        let action = if self.inner.number > 1 || self.inner.operation.has_begun() {
            EndAction::Abandon(Abandoned::Retry)
        } else {
            EndAction::Release
        };
        self.end(action, false)
    }

    /// Abandons the attempt, because its outcome is unknown: the next request takes over the key at
    /// once, or the key is held. The writes of the attempt's transaction are rolled back.
    ///
    /// # Cancel safety
    /// As for [`complete`](Self::complete).
    pub fn abandon(self, policy: Abandoned) -> impl Future<Output = AttemptOutcome> {
        self.end(EndAction::Abandon(policy), false)
    }

    /// Ends the attempt. If it has a transaction, that is committed if `commits`, and rolled back
    /// otherwise. A block, because an `async fn` stores its arguments twice.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` stores its arguments twice")]
    fn end(mut self, action: EndAction, commits: bool) -> impl Future<Output = AttemptOutcome> {
        async move {
            self.inner.operation.end();
            let ended = self.inner.parts.store.stopwatch();
            let outcome = match &mut *self.inner {
                Inner::ByLease(attempt)
                    if matches!(attempt.claimed.effects, Effects::Elsewhere) =>
                {
                    attempt.end(action).await
                }
                // Boxed: keeps the future small for attempts without a transaction.
                Inner::ByLease(attempt) => {
                    Box::pin(attempt.end_with_transaction(action, commits)).await
                }
                Inner::InTransaction(attempt) => Box::pin(attempt.end(action, commits)).await,
            };
            self.inner.observe_times(ended);
            outcome
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.inner.operation.end();
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
