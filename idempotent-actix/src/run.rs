//! Claim, work, recording, answer: what happens to a keyed request after its extractors.

use std::{future::Future, pin::Pin, rc::Rc, time::Duration};

use actix_web::{Error, HttpMessage, HttpRequest, HttpResponse, http::StatusCode};
use idempotent_core::{
    RecordId, RequestDigest, ScopeId, StoreError,
    runtime::{Admission, Verdict},
};

pub use self::answer::GuardedAnswer;
use self::unguarded::unguarded;
use self::work::{Answering, Work};
pub(crate) use self::{answer::Admission as OperationBegun, detach::detach};
use crate::{
    account::Account,
    builder::StoreFailurePolicy,
    idempotency::Idempotency,
    in_flight::Limit,
    operation::{Misconfigured, Slot},
    outcome::{Replayable, RequestOutcome},
    private::{ClaimMode, OperationSpec},
    problem::{self, ProblemKind},
    recording,
    request::{Guard, Keyed, Said},
    scope::EVERYONE,
};

mod answer;
mod attempt;
mod detach;
mod unguarded;
mod work;

impl<K, M, B> Guard<K, M, B> {
    /// Runs the work once, or gives the response that takes its place.
    ///
    /// Its return type is written out: with an opaque one, rustc reports a response that cannot be replayed three times.
    ///
    /// # Cancel safety
    /// Safe: dropped before its first poll, nothing has been done; dropped later, the operation finishes in a task of its own, and its
    /// outcome is recorded.
    pub fn run<F, R>(
        self,
        operation: &'static OperationSpec,
        scope: Result<ScopeId, Option<Error>>,
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
        scope: Result<ScopeId, Option<Error>>,
        handler: Pin<Box<dyn Answering>>,
    ) -> GuardedAnswer {
        let Self { request, idempotency, keyed, .. } = self;
        if request.extensions().contains::<Misconfigured>() {
            let problem = idempotency.problem(ProblemKind::Misconfigured, ProblemKind::Misconfigured.advice());
            return GuardedAnswer::given(idempotency.render(&problem, RequestOutcome::Unavailable, &request));
        }
        let work = Work { handler, request: request.clone() };
        match keyed {
            Some(Keyed { slot, said }) => Run { idempotency, request, operation, slot }.start(scope, said, work),
            None => GuardedAnswer::unkeyed(async move {
                let time_limit = idempotency.time_limit(operation);
                unguarded(&idempotency, &request, work, time_limit).await
            }),
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
    /// Refuses the request, or prepares the future that answers it.
    fn start(self, scope: Result<ScopeId, Option<Error>>, said: Said, work: Work) -> GuardedAnswer {
        let (scope, digest) = match self.admit(scope, said) {
            Ok(admitted) => admitted,
            Err(refusal) => return GuardedAnswer::given(refusal),
        };
        // Counted first, then checked: a drain that begins in between either is seen here or waits for this.
        let counted = self.idempotency.work().token();
        if self.idempotency.is_draining() {
            return GuardedAnswer::given(self.refuse(ProblemKind::ShuttingDown, RequestOutcome::Unavailable));
        }
        let entered = self.idempotency.in_flight().enter(&scope).map(|place| (place, None));
        // At the limit, what has run already is still found: only what would run is refused.
        let entered = entered.or_else(|limit| Ok((self.idempotency.looks().enter(&scope)?, Some(limit))));
        let (place, limit) = match entered {
            Ok(entered) => entered,
            Err(limit) => return GuardedAnswer::given(self.overloaded(limit)),
        };
        self.slot.counted.begin(place, counted);
        let (idempotency, request) = (self.idempotency.clone(), self.request.clone());
        let id = self.record_id(&scope);
        // In the global scope the principal is everybody.
        let digest = if scope == *EVERYONE { digest } else { digest.of(scope.principal()) };
        let slot = self.slot.clone();
        // Boxed: moves to another task when the client disconnects. A block, since an `async fn` has its arguments twice.
        let answer = Box::pin(async move {
            let mut response = match limit {
                None => self.operate(id, digest, work).await,
                Some(limit) => Box::pin(self.look(id, digest, limit)).await,
            };
            response.extensions_mut().insert(id);
            // Middleware that waits for the end of the operation counts with it.
            if !self.request.extensions().contains::<OperationBegun>() {
                self.slot.counted.end();
            }
            response
        });
        GuardedAnswer::keyed(answer, slot, idempotency, request)
    }

    async fn operate(&self, id: RecordId, digest: RequestDigest, work: Work) -> HttpResponse {
        let (runtime, policy) = (self.idempotency.runtime(), &self.operation.policy);
        let begun = match self.operation.claim {
            ClaimMode::Lease => runtime.begin(id, digest, policy).await,
            ClaimMode::Transaction => Box::pin(runtime.begin_within(id, digest, policy)).await,
        };
        // Boxed: a replay does not carry what a run takes.
        match begun {
            Ok(Admission::Proceed(attempt)) => Box::pin(self.attempt(attempt, work)).await,
            Ok(Admission::Rejected(verdict)) => self.tell(verdict),
            Err(error) => Box::pin(self.without_store(id, &error, work)).await,
        }
    }

    /// The response where a limit on operations is reached, and the key may have been used before.
    async fn look(&self, id: RecordId, digest: RequestDigest, limit: Limit) -> HttpResponse {
        match self.idempotency.runtime().find(id, digest).await {
            Ok(Some(verdict)) => self.tell(verdict),
            Ok(None) => self.overloaded(limit),
            Err(error) => {
                let cause = std::error::Error::source(&error);
                tracing::warn!(%id, %error, cause, "looking up a key at the limit of operations in flight failed; its request was refused");
                self.overloaded(limit)
            }
        }
    }

    /// Whose key it is and what was asked for, unless the request is refused.
    #[expect(clippy::result_large_err, reason = "it is sent at once")]
    fn admit(
        &self,
        scope: Result<ScopeId, Option<Error>>,
        said: Said,
    ) -> Result<(ScopeId, RequestDigest), HttpResponse> {
        let admitted = match (scope, said) {
            (Ok(scope), Said::Digest(digest)) => (scope, digest),
            (Err(error), _) => return Err(self.nobody(error)),
            (Ok(_), Said::Body(_)) => return Err(self.refuse(ProblemKind::Misconfigured, RequestOutcome::Unavailable)),
        };
        if self.operation.claim == ClaimMode::Transaction && Account::of(&self.request).is_none() {
            tracing::error!(
                "`claim = \"transaction\"` without idempotent_actix's `Tx`: the handler takes another type of that name"
            );
            return Err(self.refuse(ProblemKind::Misconfigured, RequestOutcome::Unavailable));
        }
        Ok(admitted)
    }

    fn record_id(&self, scope: &ScopeId) -> RecordId {
        let namespace = self.idempotency.namespace_of(self.operation);
        if !self.operation.name.is_empty() {
            return RecordId::new(namespace, scope, self.operation.name, &self.slot.key);
        }
        let pattern = self.request.match_pattern();
        // A default service matches no pattern; its name keeps it apart from the others.
        let pattern = pattern.as_deref().unwrap_or(self.operation.handler);
        RecordId::joined(namespace, scope, &[self.request.method().as_str(), " ", pattern], &self.slot.key)
    }

    /// What a client gets whose request does not run, or whose attempt does not count.
    fn tell(&self, verdict: Verdict) -> HttpResponse {
        match verdict {
            Verdict::Completed(recording) => match recording::replay(recording) {
                Some(mut response) => {
                    response.extensions_mut().insert(RequestOutcome::Replayed);
                    response
                }
                None => {
                    tracing::error!("a recording is not an answer that HTTP allows; its key stays as it is");
                    self.refuse(ProblemKind::RecordUnreadable, RequestOutcome::Unavailable)
                }
            },
            Verdict::Unreadable => self.refuse(ProblemKind::RecordUnreadable, RequestOutcome::Unavailable),
            Verdict::Held { newly } => self.refuse(
                ProblemKind::OutcomeUnknown,
                if newly { RequestOutcome::BecameHeld } else { RequestOutcome::OutcomeUnknown },
            ),
            Verdict::Mismatch => self.refuse(ProblemKind::KeyReused, RequestOutcome::KeyReused),
            Verdict::InFlight { lease_left } => {
                let problem = self.idempotency.problem(ProblemKind::InFlight, ProblemKind::InFlight.advice());
                let problem = problem.retry_after(problem::retry_after(lease_left));
                self.idempotency.render(&problem, RequestOutcome::InFlight, &self.request)
            }
        }
    }

    /// The response where the key could not be claimed. Only a failure that may pass by itself is one that the application can choose
    /// to run through: a store that is misconfigured would leave every request unguarded, and unnoticed, for good.
    async fn without_store(&self, id: RecordId, error: &StoreError, work: Work) -> HttpResponse {
        let cause = std::error::Error::source(error);
        if error.is_transient() && self.idempotency.settings().when_store_fails == StoreFailurePolicy::RunUnguarded {
            tracing::error!(%id, %error, cause, "a keyed request runs unguarded, as the application has chosen");
            let _ = self.slot.claimed.set((id, 1));
            let time_limit = self.idempotency.time_limit(self.operation);
            return unguarded(&self.idempotency, &self.request, work, time_limit).await;
        }
        if error.is_share_exceeded() {
            tracing::warn!(%id, %error, cause, "a principal has its share of the store; its request was refused");
            return self.overloaded(Limit::Principal);
        }
        tracing::error!(%id, %error, cause, "a keyed request was refused");
        self.refuse(problem::kind_of(error), RequestOutcome::Unavailable)
    }

    /// The answer to a request without a principal: the scope's own, or 401.
    fn nobody(&self, error: Option<Error>) -> HttpResponse {
        match error {
            Some(error) => {
                let mut response = HttpResponse::from_error(error);
                response.extensions_mut().insert(RequestOutcome::Refused);
                response
            }
            None => self.refuse(ProblemKind::ScopeMissing, RequestOutcome::Refused),
        }
    }

    /// The response where too many operations are in flight.
    fn overloaded(&self, limit: Limit) -> HttpResponse {
        let (status, detail) = match limit {
            Limit::Total => {
                (StatusCode::SERVICE_UNAVAILABLE, "nothing was run; send the request again with the same key")
            }
            Limit::Principal => (
                StatusCode::TOO_MANY_REQUESTS,
                "nothing was run; wait for your other operations, then send the request again with the same key",
            ),
        };
        let problem = self.idempotency.problem(ProblemKind::Overloaded, detail).with_status(status);
        let problem = problem.retry_after(problem::retry_after(Duration::ZERO));
        self.idempotency.render(&problem, RequestOutcome::Overloaded, &self.request)
    }

    fn refuse(&self, kind: ProblemKind, outcome: RequestOutcome) -> HttpResponse {
        let mut problem = self.idempotency.problem(kind, kind.advice());
        if matches!(kind, ProblemKind::StoreUnavailable | ProblemKind::ShuttingDown) {
            problem = problem.retry_after(problem::retry_after(Duration::ZERO));
        }
        self.idempotency.render(&problem, outcome, &self.request)
    }
}
