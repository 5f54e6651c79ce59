//! Steps: recovery points of an operation.

use std::{fmt, marker::PhantomData};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    note_error::NoteError,
    run::{Run, Shared, passed},
};
use crate::{
    protocol::Note, record_id::DerivedKey, runtime::recordable::Recordable, store::Transaction,
};

/// A step of an operation, from [`Run::step`]. Its methods run it, or return the result that
/// an earlier attempt has recorded.
///
/// An error `E` of the step must be convertible from `W`, which is [`NoteError`] unless an
/// integration wraps it.
#[must_use = "a step does nothing until it is run"]
pub struct Step<'a, W = NoteError> {
    /// `None` before the claim.
    pub(super) operation: Option<&'a Run>,
    pub(super) name: &'a str,
    pub(super) error: PhantomData<fn() -> W>,
}

/// A step that a later attempt reconciles before it runs it again, from [`Step::reconcile`].
#[must_use = "a step does nothing until it is run"]
pub struct ReconciledStep<'a, R, W = NoteError> {
    step: Step<'a, W>,
    find: R,
}

/// What another service knows about a step of an earlier attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconciliation<T> {
    /// The step was done, with this result, which is recorded.
    Found(T),
    /// The step was not done, and will not be done later. It is run.
    Absent,
    /// Whether the step was done is unknown. The key is held.
    Unknown,
}

/// A transaction that a handler uses, in which a [step](Step::run_in) can be recorded. An
/// integration implements it.
pub trait HandlerTransaction {
    /// The connection, for the statements of the handler.
    type Connection: 'static;
    /// The error if the transaction cannot be begun.
    type Error;

    /// Returns the transaction, and begins it if it has not begun yet.
    fn transaction(
        &mut self,
    ) -> impl Future<Output = Result<&mut Box<dyn Transaction>, Self::Error>>;
}

/// What a step has to do.
enum Begun<'a, T> {
    /// An earlier attempt has recorded its result.
    Done(T),
    Run(RunningStep<'a>),
}

/// A step that is running. Dropping it lets other steps run.
struct RunningStep<'a> {
    operation: &'a Run,
    name: &'a str,
}

impl Run {
    /// Names a step of the operation: a recovery point. Its result is recorded once it is done, and
    /// a later attempt gets the result instead of running the step again.
    ///
    /// `name` has 1 to 255 bytes and is the label of the [derived key](Self::derive_key) that the
    /// step gets. Steps run one after the other, in the same order in each attempt. Never rename a
    /// step while operations may be in flight.
    ///
    /// ```
    /// # use idempotent_core::{DerivedKey, runtime::{Run, NoteError}};
    /// # struct Bank;
    /// # impl Bank {
    /// #     async fn charge(&self, _key: DerivedKey) -> Result<String, NoteError> {
    /// #         Ok("ch_1".into())
    /// #     }
    /// # }
    /// async fn pay(operation: &Run, bank: &Bank) -> Result<String, NoteError> {
    ///     operation.step("charge").run(|key| bank.charge(key)).await
    /// }
    /// ```
    pub fn step<'a>(&'a self, name: &'a str) -> Step<'a> {
        Step { operation: Some(self), name, error: PhantomData }
    }
}

impl Drop for RunningStep<'_> {
    fn drop(&mut self) {
        self.operation.state().running = false;
    }
}

impl<'a> Step<'a> {
    /// Names a step of an operation that is not claimed yet. It fails with
    /// [`NoteError::NotClaimed`] when it is run. An integration uses it.
    pub fn unclaimed(name: &'a str) -> Self {
        Self { operation: None, name, error: PhantomData }
    }
}

impl<'a, W> Step<'a, W> {
    /// Changes the error that the error of the step is converted from. An integration uses it.
    pub fn with_error<V>(self) -> Step<'a, V> {
        Step { operation: self.operation, name: self.name, error: PhantomData }
    }

    /// Asks another service what it knows about this step before a later attempt runs it again.
    ///
    /// `find` gets the step's derived key. It is called only in an attempt that is
    /// [recovering](Run::recovering) and has no recorded result. If `find` fails, the step
    /// fails with its error and is not run.
    pub fn reconcile<R, F>(self, find: R) -> ReconciledStep<'a, R, W>
    where
        R: FnOnce(DerivedKey) -> F,
    {
        ReconciledStep { step: self, find }
    }

    /// Runs the step and records its result, or returns the result that an earlier attempt has
    /// recorded. The result is returned as it is read from its JSON, so that every attempt gets the
    /// same.
    ///
    /// `effect` gets the [derived key](Run::derive_key) of the step, for a call to another
    /// service. If it fails, nothing is recorded, and a later attempt runs it again.
    ///
    /// # Errors
    /// Fails with the error of `effect`, or with a [`NoteError`]. After
    /// [`NoteError::Store`] the step may have been done without being recorded.
    ///
    /// # Cancel safety
    /// If the future is dropped, the step may have been done without being recorded.
    pub async fn run<T, E, F>(self, effect: impl FnOnce(DerivedKey) -> F) -> Result<T, E>
    where
        T: Recordable,
        E: From<W>,
        W: From<NoteError>,
        F: Future<Output = Result<T, E>>,
    {
        match self.begin_outside().await.map_err(W::from)? {
            Begun::Done(result) => Ok(result),
            Begun::Run(running) => running.run(effect).await,
        }
    }

    /// Runs the step in the handler's transaction, and records it there: its effects and its result
    /// are committed together with the completion of the operation, or none of them is.
    ///
    /// # Errors
    /// As for [`run`](Self::run), or with the error of the transaction.
    ///
    /// # Cancel safety
    /// If the future is dropped, the transaction may contain a part of the step; do not commit it.
    pub async fn run_in<X, T, E>(
        self,
        transaction: &mut X,
        effect: impl AsyncFnOnce(&mut X::Connection) -> Result<T, E>,
    ) -> Result<T, E>
    where
        X: HandlerTransaction,
        T: Recordable,
        E: From<W> + From<X::Error>,
        W: From<NoteError>,
    {
        let transaction = transaction.transaction().await?;
        let running = match self.begin().await.map_err(W::from)? {
            Begun::Done(result) => return Ok(result),
            Begun::Run(running) => running,
        };
        let connection = transaction
            .connection_mut()
            .downcast_mut()
            .ok_or_else(|| W::from(NoteError::TransactionOpen))?;
        let result = effect(connection).await?;
        let (note, result) = running.note(&result).map_err(W::from)?;
        let Shared { parts, lease, .. } = &*running.operation.shared;
        if parts.is_some() {
            passed(transaction.note(lease, &note).await).map_err(W::from)?;
        }
        Ok(result)
    }

    fn operation(&self) -> Result<&'a Run, NoteError> {
        self.operation.ok_or(NoteError::NotClaimed)
    }

    /// Begins a step whose result is stored at once.
    async fn begin_outside<T: DeserializeOwned>(&self) -> Result<Begun<'a, T>, NoteError> {
        let operation = self.operation()?;
        operation.outside_transaction()?;
        let begun = self.begin().await?;
        if matches!(begun, Begun::Run(_)) {
            operation.pass_point_of_no_return().await?;
            let mut state = operation.state();
            if state.ended {
                return Err(NoteError::Ended);
            }
            state.began = true;
        }
        Ok(begun)
    }

    async fn begin<T: DeserializeOwned>(&self) -> Result<Begun<'a, T>, NoteError> {
        let (operation, name) = (self.operation()?, self.name);
        if name.is_empty() || name.len() > usize::from(u8::MAX) {
            return Err(NoteError::StepName { step: name.to_owned() });
        }
        operation.not_ended()?;
        operation.read_steps().await?;
        let mut state = operation.state();
        // Between the read and this line the attempt may end.
        if state.ended {
            return Err(NoteError::Ended);
        }
        if state.running {
            return Err(NoteError::Concurrent { step: name.to_owned() });
        }
        match state.steps.get_or_insert_default().take(name)? {
            Some(result) => {
                // It was recorded after the point of no return.
                (state.passed, state.began) = (true, true);
                Ok(Begun::Done(result))
            }
            None => {
                state.running = true;
                Ok(Begun::Run(RunningStep { operation, name }))
            }
        }
    }
}

impl<R, W> ReconciledStep<'_, R, W> {
    /// Runs the step and records its result, or returns the result that an earlier attempt has
    /// recorded or that [`reconcile`](Step::reconcile) has found.
    ///
    /// # Errors
    /// As for [`Step::run`], or with the error of the reconciliation. Fails with
    /// [`NoteError::OutcomeUnknown`] if the reconciliation returns
    /// [`Reconciliation::Unknown`]; the key is then held, whatever the handler responds.
    ///
    /// # Cancel safety
    /// As for [`Step::run`].
    pub async fn run<T, E, F, G>(self, effect: impl FnOnce(DerivedKey) -> F) -> Result<T, E>
    where
        T: Recordable,
        E: From<W>,
        W: From<NoteError>,
        R: FnOnce(DerivedKey) -> G,
        F: Future<Output = Result<T, E>>,
        G: Future<Output = Result<Reconciliation<T>, E>>,
    {
        let running = match self.step.begin_outside().await.map_err(W::from)? {
            Begun::Done(result) => return Ok(result),
            Begun::Run(running) => running,
        };
        let operation = running.operation;
        if !operation.recovering() {
            return running.run(effect).await;
        }
        match (self.find)(running.key()).await? {
            Reconciliation::Found(result) => running.record(result).await.map_err(W::from),
            Reconciliation::Absent => return running.run(effect).await,
            Reconciliation::Unknown => {
                operation.state().unknown = true;
                Err(W::from(NoteError::OutcomeUnknown))
            }
        }
        .map_err(E::from)
    }
}

impl RunningStep<'_> {
    fn key(&self) -> DerivedKey {
        self.operation.derive_key(self.name)
    }

    async fn run<T, E, W, F>(self, effect: impl FnOnce(DerivedKey) -> F) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<W>,
        W: From<NoteError>,
        F: Future<Output = Result<T, E>>,
    {
        let result = effect(self.key()).await?;
        Ok(self.record(result).await.map_err(W::from)?)
    }

    /// Records a result, and returns it as later attempts will read it.
    async fn record<T>(self, result: T) -> Result<T, NoteError>
    where
        T: Serialize + DeserializeOwned,
    {
        let (note, result) = self.note(&result)?;
        self.operation.note(&note).await?;
        Ok(result)
    }

    fn note<T>(&self, result: &T) -> Result<(Note, T), NoteError>
    where
        T: Serialize + DeserializeOwned,
    {
        let mut state = self.operation.state();
        let (step, result) = state.steps.get_or_insert_default().add(self.name, result)?;
        Ok((Note::step(step), result))
    }
}

impl<W> fmt::Debug for Step<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<R, W> fmt::Debug for ReconciledStep<'_, R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReconciledStep").field("name", &self.step.name).finish_non_exhaustive()
    }
}
