//! Claim, work, recording, answer: what happens to a keyed request after its extractors.

use std::{future::Future, panic::AssertUnwindSafe, pin::Pin, rc::Rc, time::Duration};

use actix_web::{Error, HttpRequest, HttpResponse, rt};
use futures_util::FutureExt;
use idempotent_core::{
    Abandoned, Encoded, RecordId, RequestDigest, Scope, StoreError,
    runtime::{Attempt, Begun, Ending, Verdict},
};
use tracing::Instrument;

pub use self::answer::GuardedAnswer;
use self::unguarded::{no_transaction, not_committed, unguarded};
use self::work::{Answering, Work};
use crate::{
    account::Account,
    idempotency::{Idempotency, StoreFailure},
    operation::Slot,
    outcome::{Disposition, Outcome, Replayable},
    private::{ClaimMode, OperationSpec},
    problem::{self, Kind},
    recording,
    request::{Guard, Keyed, Said},
};

mod answer;
mod unguarded;
mod work;

impl<K, M, B> Guard<K, M, B> {
    /// Runs the work once, or gives the answer that takes its place. It begins at the call.
    ///
    /// Its return type is written out: with an opaque one, rustc reports an answer that cannot be replayed three times.
    ///
    /// # Cancel safety
    /// Safe: what was begun goes on in a task of its own, and its outcome is recorded.
    pub fn run<F, R>(
        self,
        operation: &'static OperationSpec,
        scope: Result<Scope, Option<Error>>,
        work: F,
    ) -> GuardedAnswer
    where
        F: Future<Output = R> + 'static,
        R: Replayable + 'static,
        Self: 'static,
    {
        self.begin(operation, scope, Box::pin(work))
    }

    fn begin(
        self,
        operation: &'static OperationSpec,
        scope: Result<Scope, Option<Error>>,
        handler: Pin<Box<dyn Answering>>,
    ) -> GuardedAnswer {
        let Self { request, idempotency, keyed, .. } = self;
        let work = Work { handler, request: request.clone() };
        match keyed {
            Some(Keyed { slot, said }) => Run { idempotency, request, operation, slot }.start(scope, said, work),
            None => GuardedAnswer::here(async move { unguarded(&idempotency, &request, work).await }),
        }
    }
}

/// A keyed request on its way to its answer.
struct Run {
    idempotency: Idempotency,
    request: HttpRequest,
    operation: &'static OperationSpec,
    slot: Rc<Slot>,
}

impl Run {
    /// Refuses the request, or starts the task that answers it.
    fn start(self, scope: Result<Scope, Option<Error>>, said: Said, work: Work) -> GuardedAnswer {
        let (scope, digest) = match self.admit(scope, said) {
            Ok(admitted) => admitted,
            Err(refusal) => return GuardedAnswer::given(refusal),
        };
        // Counted first, then checked: a drain that begins in between either is seen here or waits for this.
        let counted = self.idempotency.work().token();
        if self.idempotency.is_draining() {
            return GuardedAnswer::given(self.refuse(Kind::ShuttingDown, Outcome::Unavailable));
        }
        let (idempotency, request) = (self.idempotency.clone(), self.request.clone());
        let id = self.record_id(&scope);
        // actix drops its own future when the client goes away. Claim, work and recording are in one task that it does not drop, so
        // that no claim is left without its work and no work without its recording. It is boxed, for tokio moves what it is given; and
        // it is a block, for an `async fn` has its arguments twice.
        let answer = Box::pin(async move {
            let (runtime, policy) = (self.idempotency.runtime(), &self.operation.policy);
            let begun = match self.operation.claim {
                ClaimMode::Lease => runtime.begin(id, digest, policy).await,
                ClaimMode::Transaction => Box::pin(runtime.begin_within(id, digest, policy)).await,
            };
            // Apart, so that a replay does not carry what a run takes.
            let mut response = match begun {
                Ok(Begun::Run(attempt)) => Box::pin(self.attempt(attempt, work)).await,
                Ok(Begun::Told(verdict)) => self.tell(verdict),
                Err(error) => Box::pin(self.without_store(id, &error, work)).await,
            };
            response.extensions_mut().insert(id);
            drop(counted);
            response
        });
        GuardedAnswer::apart(rt::spawn(answer.in_current_span()), idempotency, request)
    }

    /// Whose key it is and what was asked for, unless the request is refused.
    #[expect(clippy::result_large_err, reason = "it is sent at once")]
    fn admit(&self, scope: Result<Scope, Option<Error>>, said: Said) -> Result<(Scope, RequestDigest), HttpResponse> {
        let admitted = match (scope, said) {
            (Ok(scope), Said::Digest(digest)) => (scope, digest),
            (Err(error), _) => return Err(self.nobody(error)),
            (Ok(_), Said::Body(_)) => return Err(self.refuse(Kind::Misconfigured, Outcome::Unavailable)),
        };
        if self.operation.claim == ClaimMode::Transaction && Account::of(&self.request).is_none() {
            tracing::error!(
                "`claim = \"transaction\"` without idempotent_actix's `Tx`: the handler takes another type of that name"
            );
            return Err(self.refuse(Kind::Misconfigured, Outcome::Unavailable));
        }
        Ok(admitted)
    }

    fn record_id(&self, scope: &Scope) -> RecordId {
        let namespace = self.idempotency.namespace_of(self.operation);
        if !self.operation.name.is_empty() {
            return RecordId::new(namespace, scope, self.operation.name, &self.slot.key);
        }
        let pattern = self.request.match_pattern();
        // A default service matches no pattern; its name keeps it apart from the others.
        let pattern = pattern.as_deref().unwrap_or(self.operation.handler);
        RecordId::joined(namespace, scope, &[self.request.method().as_str(), " ", pattern], &self.slot.key)
    }

    /// Runs the handler and ends the attempt.
    async fn attempt(&self, mut attempt: Attempt, work: Work) -> HttpResponse {
        // The slot is new with each request, so it is empty here.
        let _ = self.slot.claimed.set((*attempt.id(), attempt.number()));
        let account = Account::of(&self.request);
        if let Some(account) = &account {
            if self.operation.claim == ClaimMode::Lease
                && let Err(error) = Box::pin(attempt.transact()).await
            {
                Box::pin(attempt.release()).await;
                return no_transaction(&self.idempotency, &self.request, &error);
            }
            account.lend(attempt.lend());
        }
        let answer = AssertUnwindSafe(async {
            let response = work.await;
            let stated = response.extensions().get::<Disposition>().copied();
            match stated.unwrap_or_else(|| Disposition::by_status(response.status(), &self.operation.policy)) {
                Disposition::Final => {
                    let recorded = recording::record(response, self.idempotency.settings().answer_limit).await;
                    recorded.map(|(recording, response)| (Kept::Answer(recording), response))
                }
                Disposition::Retryable => Ok((Kept::Nothing, response)),
                Disposition::Unknown => Ok((Kept::Unknown, response)),
            }
        });
        let answer = answer.catch_unwind().await;
        if let Some(transaction) = account.and_then(|account| account.close()) {
            attempt.take_back(transaction);
        }
        let (kept, response) = match answer {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => {
                return Box::pin(self.abandon(attempt, &format!("the answer's body failed: {error}"))).await;
            }
            Err(_) => return Box::pin(self.abandon(attempt, "the handler, or its answer's body, panicked")).await,
        };
        let ending = match kept {
            Kept::Answer(recording) if fails(&response) => attempt.complete_undone(recording).await,
            Kept::Answer(recording) => attempt.complete(recording).await,
            Kept::Nothing => attempt.release().await,
            Kept::Unknown => attempt.abandon(Abandoned::Hold).await,
        };
        self.end(ending, response)
    }

    /// The handler's answer, unless its attempt does not count.
    fn end(&self, ending: Ending, response: HttpResponse) -> HttpResponse {
        match ending {
            Ending::Stored | Ending::Deferred => ran(response),
            Ending::Fenced(verdict) => self.tell(verdict),
            Ending::NotCommitted { transient } => not_committed(&self.idempotency, &self.request, transient),
        }
    }

    /// Ends an attempt whose outcome nobody knows.
    async fn abandon(&self, attempt: Attempt, why: &str) -> HttpResponse {
        tracing::error!(id = %attempt.id(), why, "an attempt was abandoned");
        match attempt.abandon(self.operation.policy.abandoned).await {
            Ending::Stored | Ending::Deferred | Ending::NotCommitted { .. } => {
                let mut problem = self.idempotency.problem(Kind::HandlerFailed, Kind::HandlerFailed.advice());
                if self.operation.policy.abandoned == Abandoned::Hold {
                    problem = problem.not_retryable();
                }
                self.idempotency.render(&problem, Outcome::Panicked, &self.request)
            }
            Ending::Fenced(verdict) => self.tell(verdict),
        }
    }

    /// What a client gets whose request does not run, or whose attempt does not count.
    fn tell(&self, verdict: Verdict) -> HttpResponse {
        match verdict {
            Verdict::Replay(recording) => match recording::replay(recording) {
                Some(mut response) => {
                    response.extensions_mut().insert(Outcome::Replayed);
                    response
                }
                None => {
                    tracing::error!("a recording is not an answer that HTTP allows; its key stays as it is");
                    self.refuse(Kind::RecordUnreadable, Outcome::Unavailable)
                }
            },
            Verdict::Unreadable => self.refuse(Kind::RecordUnreadable, Outcome::Unavailable),
            Verdict::Held => self.refuse(Kind::OutcomeUnknown, Outcome::Held),
            Verdict::Mismatch => self.refuse(Kind::KeyReused, Outcome::Mismatch),
            Verdict::InFlight { lease_left } => {
                let problem = self.idempotency.problem(Kind::InFlight, Kind::InFlight.advice());
                let problem = problem.retry_after(problem::retry_after(lease_left));
                self.idempotency.render(&problem, Outcome::InFlight, &self.request)
            }
        }
    }

    /// The response where the key could not be claimed. Only a failure that may pass by itself is one that the application can choose
    /// to run through: a store that is misconfigured would leave every request unguarded, and unnoticed, for good.
    async fn without_store(&self, id: RecordId, error: &StoreError, work: Work) -> HttpResponse {
        let cause = std::error::Error::source(error);
        if error.is_transient() && self.idempotency.settings().when_store_fails == StoreFailure::RunUnguarded {
            tracing::error!(%id, %error, cause, "a keyed request runs unguarded, as the application has chosen");
            let _ = self.slot.claimed.set((id, 1));
            return unguarded(&self.idempotency, &self.request, work).await;
        }
        tracing::error!(%id, %error, cause, "a keyed request was refused");
        self.refuse(problem::kind_of(error), Outcome::Unavailable)
    }

    /// The answer to a request without a principal: the scope's own, or 401.
    fn nobody(&self, error: Option<Error>) -> HttpResponse {
        match error {
            Some(error) => {
                let mut response = HttpResponse::from_error(error);
                response.extensions_mut().insert(Outcome::Refused);
                response
            }
            None => self.refuse(Kind::ScopeMissing, Outcome::Refused),
        }
    }

    fn refuse(&self, kind: Kind, outcome: Outcome) -> HttpResponse {
        let mut problem = self.idempotency.problem(kind, kind.advice());
        if matches!(kind, Kind::StoreUnavailable | Kind::ShuttingDown) {
            problem = problem.retry_after(problem::retry_after(Duration::ZERO));
        }
        self.idempotency.render(&problem, outcome, &self.request)
    }
}

/// What is kept of an answer.
enum Kept {
    Answer(Encoded),
    Nothing,
    /// That nobody knows what was done.
    Unknown,
}

/// Whether an answer says that the operation was not done, so that its effects are undone.
fn fails(response: &HttpResponse) -> bool {
    response.status().as_u16() >= 400
}

fn ran(mut response: HttpResponse) -> HttpResponse {
    response.extensions_mut().insert(Outcome::Ran);
    response
}
