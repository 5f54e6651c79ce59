//! Typed operations that are not HTTP requests, and operations without their clients.
//!
//! [`Runtime::run`] runs a message of a queue, a scheduled job, a mutation or an item of a batch.
//! [`Runtime::resume`] claims an operation that was abandoned, in order to finish it.

use std::sync::Arc;

use serde::Serialize;
use tracing::Instrument;

use self::prepared::Prepared;
pub use self::{
    definition::{ClaimMode, Job},
    job_transaction::JobTransaction,
    outcome::{Done, Failure, RunError},
    result_recording::recording_of,
};
pub use crate::runtime::TransactionError;
use crate::{
    key::Key,
    runtime::{Recordable, Run, Runtime, TransactionSlot},
    scope::ScopeId,
};

mod definition;
mod ending;
mod job_transaction;
mod outcome;
mod prepared;
mod result_recording;
mod resume;

impl Runtime {
    /// Runs `work` once for a key, or returns the result of the run that came first.
    ///
    /// The key is claimed, its lease is renewed while `work` runs, and the result is recorded as
    /// JSON. A later run with the key, in this process or another one, gets the recorded result.
    /// While another run is in flight, this call waits for up to the `wait` of the job's policy.
    ///
    /// * `scope` is the principal that the key belongs to; [`ScopeId::global`] if there is none.
    /// * `key` is the identity of the run: the id of a message, the time for which a job is
    ///   scheduled, a key for each item of a batch. [`Key::from_text`] makes one of any text.
    /// * `input` is what the operation depends on. It is compared as canonical JSON
    ///   ([RFC 8785](crate::canonical_json)) and is not stored: another input with the same key is
    ///   a [mismatch](crate::protocol::Rejection::Mismatch).
    /// * The value of `work` is returned as it is read from its JSON, by the first run too, so that
    ///   every run returns the same: `Some(())`, which JSON cannot tell from `None`, is `None`.
    /// * `work` gets the [`Run`], for steps, derived keys, a reference and progress. A
    ///   [`Failure`] decides what happens to the key.
    ///
    /// ```
    /// use idempotent_core::{
    ///     Key, Runtime, ScopeId,
    ///     job::{Failure, Job},
    ///     runtime::RuntimeOptions,
    ///     store::memory::MemoryStore,
    /// };
    ///
    /// const INVOICE: Job = Job::new("create invoice");
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::new(MemoryStore::new(), RuntimeOptions::default());
    ///
    /// let (scope, key) = (ScopeId::of("customer", "7"), Key::from_text("2026-11")?);
    /// for replayed in [false, true] {
    ///     let invoice = runtime.run(&INVOICE, &scope, &key, &("EUR", 1200), |_| async {
    ///         Ok::<_, Failure>("invoice 41".to_owned())
    ///     });
    ///     let invoice = invoice.await?;
    ///     assert_eq!((&*invoice.value, invoice.replayed), ("invoice 41", replayed));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Relation to handlers
    /// A run and an annotated HTTP handler are different operations if their names differ. If a
    /// job has the name of a handler, a key that both use in one scope has one record; the one that
    /// comes second gets a mismatch, and never the other's response.
    ///
    /// # Errors
    /// See [`RunError`].
    ///
    /// # Panics
    /// If `work` panics, the attempt is abandoned, and the panic is resumed.
    ///
    /// # Cancel safety
    /// `input` is read by this call, and nothing else happens before the future is polled. If the
    /// future is dropped while `work` runs, the attempt is abandoned: the lease expires, and then
    /// the policy decides. If it is dropped after that, the result is recorded in the background.
    /// The future borrows nothing, so `tokio::spawn` can run it to its end regardless of its
    /// caller. It is [`Send`] if `work` and its future, `T` and `E` are.
    pub fn run<I, T, E, W, F>(
        &self,
        job: &Job,
        scope: &ScopeId,
        key: &Key,
        input: &I,
        work: W,
    ) -> impl Future<Output = Result<Done<T>, RunError<E>>> + use<I, T, E, W, F>
    where
        I: Serialize + ?Sized,
        T: Recordable,
        E: Recordable,
        W: FnOnce(Run) -> F,
        F: Future<Output = Result<T, Failure<E>>>,
    {
        let prepared = Prepared::new(self, job, scope, key, input);
        async move {
            let prepared = prepared?;
            let span = prepared.span();
            let run = async {
                let attempt = match prepared.begin().await? {
                    Ok(attempt) => attempt,
                    Err(verdict) => return result_recording::result_of(verdict),
                };
                let operation = attempt.operation().clone();
                // Boxed: keeps the future of a replay small.
                Box::pin(ending::carry_out(attempt, async { work(operation).await }, None)).await
            };
            run.instrument(span).await
        }
    }

    /// Runs `work` once for a key as [`run`](Self::run) does, with a transaction of the store's
    /// database, in which its effects and its result are committed together.
    ///
    /// `work` gets a [`JobTransaction`] as well. What it writes there is committed if it succeeds,
    /// together with the recorded result, and rolled back if it fails or panics. A
    /// [final failure](Failure::Final) is recorded nevertheless. `C` is the type of the store's
    /// connections, the `Connection` of its [database](crate::store::Transactions::database).
    ///
    /// [`Job::with_claim`] chooses between two ways to claim the key.
    ///
    /// # Errors
    /// See [`RunError`]. Fails with [`RunError::Store`], and claims nothing, if the store has no
    /// transactions.
    ///
    /// # Panics
    /// As for [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As for [`run`](Self::run). If the future is dropped during the commit, it is unknown whether
    /// the effects and the result were committed; a later run with the key finds out.
    pub fn run_in_transaction<C, I, T, E, W, F>(
        &self,
        job: &Job,
        scope: &ScopeId,
        key: &Key,
        input: &I,
        work: W,
    ) -> impl Future<Output = Result<Done<T>, RunError<E>>> + use<C, I, T, E, W, F>
    where
        C: 'static,
        I: Serialize + ?Sized,
        T: Recordable,
        E: Recordable,
        W: FnOnce(Run, JobTransaction<C>) -> F,
        F: Future<Output = Result<T, Failure<E>>>,
    {
        let prepared = Prepared::new(self, job, scope, key, input);
        async move {
            let prepared = prepared?;
            let span = prepared.span();
            let run = async {
                let mut attempt = match prepared.begin_with_transaction().await? {
                    Ok(attempt) => attempt,
                    Err(verdict) => return result_recording::result_of(verdict),
                };
                let slot = Arc::<TransactionSlot>::default();
                slot.open_for(&mut attempt);
                let operation = attempt.operation().clone();
                let runtime = prepared.runtime.clone();
                let transaction = JobTransaction::new(runtime, operation.clone(), slot.clone());
                let work = async { work(operation, transaction).await };
                Box::pin(ending::carry_out(attempt, work, Some(slot))).await
            };
            run.instrument(span).await
        }
    }
}
