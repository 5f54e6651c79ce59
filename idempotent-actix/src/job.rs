//! Operations without an HTTP request of their own: items of a batch, messages of a queue,
//! scheduled jobs.
//!
//! [`Idempotency::run`] runs one with the store, the namespace and the shutdown of the application.
//! The guide [Queue consumers, jobs, and batches](crate::guide::without_http) shows how.

use idempotent_core::{Key, ScopeId, StoreError, runtime::Recordable};
#[cfg(feature = "_tx")]
pub use idempotent_core::{job::JobTransaction, runtime::TransactionError};
pub use idempotent_core::{
    job::{ClaimMode, Done, Failure, Job, RunError, recording_of},
    protocol::Rejection,
    runtime::Run,
};
use serde::Serialize;

use crate::{idempotency::Idempotency, outcome::RequestOutcome};

impl Idempotency {
    /// Runs `work` once for a key, or returns the result of the run that came first; see
    /// [`Runtime::run`](idempotent_core::Runtime::run), which this calls.
    ///
    /// The key is separate from the key of any request. A batch endpoint calls this once for each
    /// item, so that each item has its own result:
    ///
    /// ```
    /// use actix_web::{HttpResponse, post, web};
    /// use idempotent_actix::{Idempotency, Key, job::{Failure, Job}, scope::ScopeId};
    ///
    /// const RESERVE: Job = Job::new("reserve item");
    ///
    /// #[derive(serde::Deserialize, serde::Serialize)]
    /// struct Item {
    ///     key: String,
    ///     sku: String,
    /// }
    ///
    /// #[post("/v1/reservations/batch")]
    /// async fn reserve(
    ///     idempotency: web::Data<Idempotency>,
    ///     items: web::Json<Vec<Item>>,
    /// ) -> actix_web::Result<HttpResponse> {
    ///     let scope = ScopeId::of("customer", "7"); // of the authenticated customer
    ///     let mut results = Vec::new();
    ///     for Item { key, sku } in items.into_inner() {
    ///         let key = Key::from_text(key).map_err(actix_web::error::ErrorBadRequest)?;
    ///         let run = idempotency.run(&RESERVE, &scope, &key, &sku, |_| async {
    ///             if sku.is_empty() {
    ///                 return Err(Failure::Final("no such item".to_owned()));
    ///             }
    ///             Ok(format!("reservation of {sku}"))
    ///         });
    ///         results.push(run.await.map(|done| done.value).map_err(|error| error.to_string()));
    ///     }
    ///     Ok(HttpResponse::MultiStatus().json(results))
    /// }
    /// ```
    ///
    /// [`drain`](Self::drain) waits for runs that are in flight, and they are not refused while it
    /// does. They do not count as
    /// [operations in flight](crate::IdempotencyBuilder::operations_in_flight).
    ///
    /// # Errors
    /// As for `Runtime::run`. Fails with [`RunError::Store`] as well if the
    /// [builder](crate::IdempotencyBuilder::namespace) sets no namespace, and the package of the
    /// annotated handlers cannot be the namespace.
    ///
    /// # Panics
    /// If `work` panics, the attempt is abandoned, and the panic is resumed.
    ///
    /// # Cancel safety
    /// If the future is dropped while `work` runs, as it is if the client of a batch endpoint
    /// disconnects, the attempt is abandoned. The future borrows nothing: spawn it to keep it
    /// running.
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
        let run = self.has_namespace();
        let count = self.request_count(Some(job.name));
        let run = run.map(|()| self.runtime().run(job, scope, key, input, work));
        let token = self.operations().token();
        async move {
            let result = run?.await;
            drop(token);
            count.of(outcome_of(&result));
            result
        }
    }

    /// Runs `work` as [`run`](Self::run) does, with a transaction in which its effects and its
    /// result are committed together; see
    /// [`Runtime::run_in_transaction`](idempotent_core::Runtime::run_in_transaction).
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    ///
    /// # Panics
    /// As for [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As for [`run`](Self::run).
    #[cfg(feature = "_tx")]
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
        let run = self.has_namespace();
        let count = self.request_count(Some(job.name));
        let run = run.map(|()| self.runtime().run_in_transaction(job, scope, key, input, work));
        let token = self.operations().token();
        async move {
            let result = run?.await;
            drop(token);
            count.of(outcome_of(&result));
            result
        }
    }

    /// Verifies that the records of runs have a namespace.
    fn has_namespace(&self) -> Result<(), StoreError> {
        let namespace = self.namespace().map(drop);
        namespace.map_err(|source| StoreError::permanent("settings", "choose a namespace", source))
    }
}

/// The outcome of a run, by the words of a request.
fn outcome_of<T, E>(result: &Result<Done<T>, RunError<E>>) -> RequestOutcome {
    let replayed = |replayed| {
        if replayed { RequestOutcome::Replayed } else { RequestOutcome::Ran }
    };
    match result {
        Ok(done) => replayed(done.replayed),
        Err(RunError::Final { replayed: is_replayed, .. }) => replayed(*is_replayed),
        Err(RunError::Retryable { .. }) => RequestOutcome::Ran,
        Err(RunError::Rejected(Rejection::InFlight { .. })) => RequestOutcome::InFlight,
        Err(RunError::Rejected(Rejection::Mismatch { .. })) => RequestOutcome::KeyReused,
        Err(RunError::Rejected(Rejection::Held { newly: false, .. }))
        | Err(RunError::Lost { reused: true, .. }) => RequestOutcome::OutcomeUnknown,
        Err(RunError::Rejected(Rejection::Held { newly: true, .. }))
        | Err(RunError::Unknown { .. } | RunError::Other { held: true, .. }) => {
            RequestOutcome::BecameHeld
        }
        Err(RunError::Other { held: false, .. } | RunError::Lost { reused: false, .. }) => {
            RequestOutcome::HandlerFailed
        }
        Err(RunError::NotCommitted { transient: false, .. }) => RequestOutcome::HandlerFailed,
        Err(RunError::NotCommitted { transient: true, .. } | RunError::Unreadable { .. }) => {
            RequestOutcome::Unavailable
        }
        Err(RunError::Omitted) => RequestOutcome::Replayed,
        Err(RunError::Input { .. } | RunError::EmptyScope) => RequestOutcome::Refused,
        Err(RunError::Store { source, .. }) if source.is_share_exceeded() => {
            RequestOutcome::Overloaded
        }
        Err(_) => RequestOutcome::Unavailable,
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests {
    use idempotent_core::store::memory::MemoryStore;

    use super::*;

    const JOB: Job = Job::new("job");

    /// The unit tests of this crate have no annotated handlers.
    #[tokio::test]
    async fn without_any_namespace_nothing_runs() {
        let (scope, key) = (ScopeId::global(), Key::from_text("k").unwrap());
        let run = async |idempotency: Idempotency| {
            idempotency.run(&JOB, &scope, &key, &1, |_| async { Ok::<_, Failure>(7) }).await
        };
        let error = run(Idempotency::new(MemoryStore::new())).await.unwrap_err();
        let RunError::Store { source, .. } = &error else { panic!("{error:?}") };
        let cause = std::error::Error::source(source).unwrap().to_string();
        assert!(cause.contains("needs a namespace") && !error.is_transient(), "{cause}");
        let named = Idempotency::builder(MemoryStore::new()).namespace("shop").build();
        assert_eq!(run(named).await.unwrap().value, 7);
    }
}
