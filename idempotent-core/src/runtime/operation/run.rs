//! A handler's view of its operation.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use serde::Serialize;

use super::{
    note_error::NoteError,
    recorded_steps::{RecordedSteps, encode_input},
};
use crate::{
    error::StoreError,
    lease::{Lease, OwnerToken},
    policy::{Abandoned, OnAbandon},
    protocol::{Fence, Note},
    record::RecordState,
    record_id::{DerivedKey, RecordId},
    runtime::{parts::RuntimeParts, timing::with_retry},
    short_text::ShortText,
};

/// The operation of an attempt, for its handler: derived keys, recovery points, and what the record
/// shows about it.
///
/// Clones share one state. Each note is one call to the store, which the attempt's owner token
/// fences: once another attempt has taken over the key, a note fails with
/// [`NoteError::Fenced`]. The handler should then stop; its response does not reach its
/// client.
///
/// # Cancel safety
/// If the future of a method is dropped, its note may or may not be in the record.
#[derive(Clone)]
pub struct Run {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    /// `None` if the operation runs unguarded: its notes are dropped.
    pub(super) parts: Option<Arc<RuntimeParts>>,
    pub(super) lease: Lease,
    pub(super) attempt: u32,
    pub(super) rule: OnAbandon,
    pub(super) state: Mutex<RunState>,
}

#[derive(Default)]
pub(super) struct RunState {
    /// Whether the point of no return was passed.
    pub(super) passed: bool,
    /// Whether a step has begun: part of the operation may have been done.
    pub(super) began: bool,
    /// Whether a step is running.
    pub(super) running: bool,
    /// Whether the attempt has ended, so that no step may begin any more.
    pub(super) ended: bool,
    /// Whether the outcome is unknown, so that the key must be held.
    pub(super) unknown: bool,
    /// Whether a transaction of the handler is open, in which the record completes.
    pub(super) in_transaction: bool,
    /// Noted with the next step, or at the point of no return.
    pub(super) input: Bytes,
    /// The last reference that was set, in this attempt or in an earlier one.
    pub(super) reference: Option<ShortText>,
    /// Whether the reference is noted with the end of the transaction.
    pub(super) reference_is_pending: bool,
    /// The steps of earlier attempts, once they were read.
    pub(super) steps: Option<RecordedSteps>,
}

impl Run {
    pub(in crate::runtime) fn new(
        parts: Arc<RuntimeParts>,
        lease: Lease,
        attempt: u32,
        rule: OnAbandon,
    ) -> Self {
        let (parts, state) = (Some(parts), Mutex::default());
        Self { shared: Arc::new(Shared { parts, lease, attempt, rule, state }) }
    }

    /// Creates the operation of a request that runs without a claim, because the application chose
    /// so when the store failed. Its steps run and are not recorded; its notes are dropped.
    #[must_use]
    pub fn unguarded(id: RecordId) -> Self {
        let lease = Lease { id, owner: OwnerToken::from_bytes([0; 16]) };
        let (parts, attempt, rule) = (None, 1, OnAbandon::Retry);
        let state = Mutex::default();
        Self { shared: Arc::new(Shared { parts, lease, attempt, rule, state }) }
    }

    /// Returns the id of the operation's record. It is the same for all attempts.
    #[must_use]
    pub fn id(&self) -> &RecordId {
        &self.shared.lease.id
    }

    /// Returns the number of this attempt: 1 for the first. From 2 on, an earlier attempt was
    /// abandoned and may have done some or all of its work.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.shared.attempt
    }

    /// Returns whether an earlier attempt was abandoned, that is, whether
    /// [`attempt`](Self::attempt) is above 1.
    #[must_use]
    pub fn recovering(&self) -> bool {
        self.attempt() > 1
    }

    /// Derives an idempotency key for a call to another service; see [`RecordId::derive_key`].
    #[must_use]
    pub fn derive_key(&self, label: &str) -> DerivedKey {
        self.id().derive_key(label)
    }

    /// Sets the reference that the record shows: the id of what the operation created, or is about
    /// to create. The last reference stays in the record, also if the attempt is abandoned.
    ///
    /// While a transaction of the handler is open, the reference is stored with the end of the
    /// attempt, and is lost if the process dies before that.
    ///
    /// # Errors
    /// Fails if the reference has more than 255 bytes, is empty, or contains a control character,
    /// if the store fails, or if another attempt has taken over the key.
    pub async fn set_reference(&self, reference: &str) -> Result<(), NoteError> {
        let reference = short("a reference", reference)?;
        self.not_ended()?;
        if self.in_transaction() {
            let mut state = self.state();
            (state.reference, state.reference_is_pending) = (Some(reference), true);
            return Ok(());
        }
        self.note(&Note::reference(reference.clone())).await?;
        self.state().reference = Some(reference);
        Ok(())
    }

    /// Returns the last reference that was set, as far as this attempt knows: by itself, or by an
    /// earlier attempt whose [steps](Self::step) it has read.
    #[must_use]
    pub fn reference(&self) -> Option<ShortText> {
        self.state().reference.clone()
    }

    /// Reports the progress, in the handler's words, such as `3 of 10`. The record shows the last
    /// report until the operation is complete.
    ///
    /// # Errors
    /// As for [`set_reference`](Self::set_reference). Fails also while a transaction of the handler
    /// is open, because nobody could see the report before its end.
    pub async fn progress(&self, progress: &str) -> Result<(), NoteError> {
        let progress = short("a progress report", progress)?;
        self.outside_transaction()?;
        self.note(&Note::progress(progress)).await
    }

    /// Passes the point of no return: from now on, the key is held if the attempt fails or is
    /// abandoned. Call it before the first effect that must not be repeated.
    ///
    /// The rule must be [`OnAbandon::RetryThenHold`]; the first [step](Self::step) then implies the
    /// point.
    ///
    /// # Errors
    /// Fails under another rule, if the store fails, if another attempt has taken over the key, or
    /// while a transaction of the handler is open. Then do not begin the effect.
    pub async fn point_of_no_return(&self) -> Result<(), NoteError> {
        self.not_ended()?;
        let Shared { parts, rule, .. } = &*self.shared;
        // An unguarded operation does not know its rule.
        if parts.is_some() && *rule != OnAbandon::RetryThenHold {
            return Err(NoteError::NoPointOfNoReturn);
        }
        self.outside_transaction()?;
        self.pass_point_of_no_return().await
    }

    /// Sets the input from which the operation can be resumed without its client. It is stored as
    /// JSON at the point of no return, which the first [step](Self::step) implies, until the
    /// operation is complete. An operation that was abandoned after that can be resumed.
    ///
    /// # Errors
    /// Fails if the input cannot be serialized, or has more than 256 KiB.
    pub fn set_input<T: Serialize + ?Sized>(&self, input: &T) -> Result<(), NoteError> {
        self.state().input = encode_input(None, input)?;
        Ok(())
    }

    /// Sets the input, as [`set_input`](Self::set_input) does, with the namespace of the record, so
    /// that only applications with this namespace [resume](super::is_input_of) the operation.
    ///
    /// # Errors
    /// As for [`set_input`](Self::set_input).
    pub fn set_input_in<T: Serialize + ?Sized>(
        &self,
        namespace: &str,
        input: &T,
    ) -> Result<(), NoteError> {
        self.state().input = encode_input(Some(namespace), input)?;
        Ok(())
    }

    /// Declares that a transaction has begun in which the record completes. An integration calls
    /// it; a handler need not.
    pub fn transaction_begun(&self) {
        self.state().in_transaction = true;
    }

    /// Returns whether a step is running. An integration refuses to hand out the handler's
    /// transaction then, because a step that is not [run in it](super::Step::run_in) is recorded
    /// apart from it.
    #[must_use]
    pub fn is_in_step(&self) -> bool {
        self.state().running
    }

    /// Returns what happens to the key if the attempt is abandoned now.
    #[must_use]
    pub fn abandoned(&self) -> Abandoned {
        let state = self.state();
        match (state.unknown, state.passed) {
            (true, _) => Abandoned::Hold,
            (false, true) => self.shared.rule.from_the_point_of_no_return(),
            (false, false) => self.shared.rule.from_the_claim(),
        }
    }

    /// Returns whether a reconciliation did not find out what an earlier attempt has done. The
    /// attempt must then end by [`Attempt::abandon`](crate::runtime::Attempt::abandon) with
    /// [`Abandoned::Hold`].
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.state().unknown
    }

    /// Returns whether [`Attempt::release`](crate::runtime::Attempt::release) holds the key
    /// instead: part of the operation may have been done, and the attempt's rule is to hold it
    /// then.
    #[must_use]
    pub fn release_holds(&self) -> bool {
        self.abandoned() == Abandoned::Hold && (self.recovering() || self.has_begun())
    }

    /// Whether part of the operation may have been done.
    pub(in crate::runtime) fn has_begun(&self) -> bool {
        self.state().began
    }

    /// Declares that the attempt has ended. A clone that a task has kept can do nothing more.
    pub(in crate::runtime) fn end(&self) {
        self.state().ended = true;
    }

    pub(super) fn not_ended(&self) -> Result<(), NoteError> {
        if self.state().ended { Err(NoteError::Ended) } else { Ok(()) }
    }

    /// Takes the note that has to be stored with the end of the attempt.
    pub(in crate::runtime) fn take_pending(&self) -> Option<Note> {
        let mut state = self.state();
        let pending = std::mem::take(&mut state.reference_is_pending);
        state.reference.clone().filter(|_| pending).map(Note::reference)
    }

    pub(super) fn in_transaction(&self) -> bool {
        self.state().in_transaction
    }

    pub(super) fn outside_transaction(&self) -> Result<(), NoteError> {
        if self.in_transaction() { Err(NoteError::TransactionOpen) } else { Ok(()) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, RunState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the point of no return, unless it was passed before, or has no effect.
    pub(super) async fn pass_point_of_no_return(&self) -> Result<(), NoteError> {
        let hold = self.shared.rule == OnAbandon::RetryThenHold;
        let input = {
            let mut state = self.state();
            if state.passed && state.input.is_empty() {
                return Ok(());
            }
            std::mem::take(&mut state.input)
        };
        let note = Note { hold, input, ..Note::default() };
        if note != Note::default()
            && let Err(error) = self.note(&note).await
        {
            self.state().input = note.input;
            return Err(error);
        }
        self.state().passed = true;
        Ok(())
    }

    /// Stores a note. A note that fails soon for a transient reason is sent a second time; a step
    /// that is thereby recorded twice counts once.
    pub(super) async fn note(&self, note: &Note) -> Result<(), NoteError> {
        self.not_ended()?;
        let Shared { parts: Some(parts), lease, .. } = &*self.shared else { return Ok(()) };
        let fence = with_retry(|| parts.store.call("note", |store| store.note(lease, note))).await;
        passed(fence)
    }

    /// Reads the steps of earlier attempts, unless they were read before.
    pub(super) async fn read_steps(&self) -> Result<(), NoteError> {
        if self.state().steps.is_some() {
            return Ok(());
        }
        let Shared { parts, lease, .. } = &*self.shared;
        let steps = if self.recovering()
            && let Some(parts) = parts
        {
            let id = &lease.id;
            let found = with_retry(|| parts.store.call("look up", |store| store.look_up(id))).await;
            let record = found.map_err(|source| NoteError::Store { source })?;
            let ours = record.map(|found| found.record).filter(|record| {
                record.owner == lease.owner && record.state == RecordState::InFlight
            });
            let notes = ours.ok_or(NoteError::Fenced)?.notes;
            let steps = RecordedSteps::decode(&notes.steps).inspect_err(|error| {
                tracing::error!(
                    id = %id.short(), %error,
                    "the recorded steps of an operation cannot be read; none of them is run again"
                );
            })?;
            let mut state = self.state();
            state.reference = state.reference.take().or(notes.reference);
            steps
        } else {
            RecordedSteps::default()
        };
        self.state().steps = Some(steps);
        Ok(())
    }
}

pub(super) fn passed(fence: Result<Fence, StoreError>) -> Result<(), NoteError> {
    match fence {
        Ok(Fence::Passed) => Ok(()),
        Ok(Fence::Fenced) => Err(NoteError::Fenced),
        Err(source) => Err(NoteError::Store { source }),
    }
}

fn short(what: &'static str, text: &str) -> Result<ShortText, NoteError> {
    if text.is_empty() {
        return Err(NoteError::EmptyText { what });
    }
    ShortText::new(text).map_err(|source| NoteError::Text { what, source })
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("id", self.id())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}
