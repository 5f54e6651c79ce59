//! Runs a request with a key: claim, handler, recording, response.

use std::{
    future::{Future, Ready, ready},
    pin::Pin,
    rc::Rc,
    sync::Arc,
};

use actix_web::{
    Error, HttpMessage, HttpRequest, HttpResponse,
    http::header::{HeaderName, HeaderValue},
};
use futures_util::future::{Either, LocalBoxFuture};
use idempotent_core::{
    Policy, RecordId, RequestDigest, ScopeId, StoreError,
    protocol::Rejection,
    runtime::{Admission, Attempt, Run, Subject, Verdict},
};
use idempotent_http::header_names;
use tracing::{Instrument, Span, field, level_filters::LevelFilter};

pub use self::response::GuardedResponse;
pub(crate) use self::{detach::detach, handler::ErasedHandler, response::OperationStart};
use self::{
    failure::{Refusals, cause},
    handler::HandlerFuture,
    unguarded::run_unguarded,
};
use crate::{
    declaration::{ClaimMode, Declaration},
    handle_of_request::Misconfigured,
    idempotency::{Idempotency, MountedRoute},
    in_flight::ReachedLimit,
    observation::RequestCount,
    operation::OperationContext,
    outcome::{Replayable, RequestOutcome},
    problem::ProblemKind,
    recording,
    request::{Guard, KeyedRequest, RequestContent},
    scope::GLOBAL,
    settings::StoreFailurePolicy,
};

mod attempt;
mod detach;
mod failure;
mod handler;
mod identity;
mod response;
mod transaction;
mod unguarded;

impl<K, M, B, S> Guard<K, M, B, S> {
    /// Runs the handler once, or responds in its place.
    ///
    /// The return type is written out: with an opaque one, rustc reports a response that cannot be
    /// replayed three times.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped before its first poll, nothing has been done. If it is
    /// dropped later, the operation finishes in a separate task, and its outcome is recorded.
    pub fn run<F, R>(
        self,
        operation: &'static Declaration,
        scope: Result<ScopeId, Option<Error>>,
        handler: F,
    ) -> GuardedResponse
    where
        F: Future<Output = R> + 'static,
        R: Replayable + 'static,
        Self: 'static,
    {
        self.run_erased(operation, scope, Box::pin(handler))
    }

    fn run_erased(
        self,
        operation: &'static Declaration,
        scope: Result<ScopeId, Option<Error>>,
        handler: Pin<Box<dyn ErasedHandler>>,
    ) -> GuardedResponse {
        let Self { request, idempotency, keyed, .. } = self;
        let route = idempotency.patterns().route_of(operation, &request);
        let count = idempotency.request_count(route.as_ref().map(|route| route.name.as_str()));
        let is_misconfigured = request.extensions().contains::<Misconfigured>();
        let policy = idempotency.policy(operation).map_err(|conflict| {
            tracing::error!(
                error = %conflict,
                "an operation is misconfigured; its request was refused"
            );
        });
        let Some(policy) = policy.ok().filter(|_| !is_misconfigured) else {
            let refusals = Refusals { idempotency: &idempotency, request: &request };
            let refusal = refusals.refuse_unrun(ProblemKind::Misconfigured);
            return GuardedResponse::ready(refusal, &count);
        };
        let handler =
            HandlerFuture { handler, request: request.clone(), idempotency: idempotency.clone() };
        match keyed {
            Some(KeyedRequest { context, content }) => {
                let run =
                    KeyedRun { idempotency, request, operation, route, count, policy, context };
                run.start(scope, content, handler)
            }
            None => GuardedResponse::unkeyed(async move {
                let time_limit = idempotency.time_limit(operation);
                let mut response = run_unguarded(&idempotency, &request, handler, time_limit).await;
                if !idempotency.settings().enabled {
                    let name = HeaderName::from_static(header_names::DISABLED);
                    response.headers_mut().insert(name, HeaderValue::from_static("true"));
                }
                count.of_response(&response);
                response
            }),
        }
    }
}

/// A keyed request on its way to its response.
pub(crate) struct KeyedRun {
    pub(crate) idempotency: Idempotency,
    pub(crate) request: HttpRequest,
    pub(crate) operation: &'static Declaration,
    /// `None` if the name of the operation contains the path of the request.
    pub(crate) route: Option<Arc<MountedRoute>>,
    pub(crate) count: RequestCount,
    pub(crate) policy: Policy,
    pub(crate) context: Rc<OperationContext>,
}

impl KeyedRun {
    fn replay_marker(&self) -> &(HeaderName, HeaderValue) {
        &self.idempotency.settings().spoken.marker
    }

    fn refusals(&self) -> Refusals<'_> {
        Refusals { idempotency: &self.idempotency, request: &self.request }
    }

    /// Runs an operation that is resumed without its client, for which the request stands in.
    pub(crate) async fn resumed(
        &self,
        attempt: Attempt,
        handler: Pin<Box<dyn ErasedHandler>>,
    ) -> HttpResponse {
        let (request, idempotency) = (self.request.clone(), self.idempotency.clone());
        self.attempt(attempt, HandlerFuture { handler, request, idempotency }).await
    }

    /// Refuses the request, or prepares the future of its response.
    fn start(
        self,
        scope: Result<ScopeId, Option<Error>>,
        content: RequestContent,
        handler: HandlerFuture,
    ) -> GuardedResponse {
        let (scope, digest) = match self.identify(scope, content) {
            Ok(identified) => identified,
            Err(refusal) => return GuardedResponse::ready(refusal, &self.count),
        };
        // Between the check and the count a drain may begin; counting first prevents that this
        // request is neither refused nor waited for.
        let token = self.idempotency.operations().token();
        if self.idempotency.is_draining() {
            let refusal = self.refusals().refuse_unrun(ProblemKind::ShuttingDown);
            return GuardedResponse::ready(refusal, &self.count);
        }
        let principal = (scope != *GLOBAL).then(|| scope.principal());
        let permit = self.idempotency.in_flight().acquire(principal).map(|permit| (permit, None));
        // At the limit, the outcome of an earlier request with this key is still found: only a new
        // request is refused.
        let permit = permit
            .or_else(|limit| Ok((self.idempotency.look_ups().acquire(principal)?, Some(limit))));
        let (permit, limit) = match permit {
            Ok(permit) => permit,
            Err(limit) => {
                return GuardedResponse::ready(self.refusals().overloaded(limit), &self.count);
            }
        };
        self.context.permit.hold(permit, token);
        let subject = self.subject(&scope);
        let subject = principal.into_iter().fold(subject, Subject::with_principal);
        self.into_response(subject, digest, limit, handler)
    }

    fn into_response(
        self,
        subject: Subject,
        digest: RequestDigest,
        limit: Option<ReachedLimit>,
        handler: HandlerFuture,
    ) -> GuardedResponse {
        let (idempotency, request) = (self.idempotency.clone(), self.request.clone());
        let (id, context, count) = (subject.id, self.context.clone(), self.count.clone());
        // Without a subscriber for its level, the span is not created.
        let span = if LevelFilter::current() < LevelFilter::INFO {
            Span::none()
        } else {
            tracing::info_span!(
                "idempotency",
                // The full name can contain the path of the request, and that a key.
                operation = self.route.as_ref().map_or("other", |route| &route.name),
                id = %id.short(),
                outcome = field::Empty,
            )
        };
        // Boxed: moves to another task when the client disconnects. A block, because an `async fn`
        // stores its arguments twice.
        let future = async move {
            let response = match limit {
                None => {
                    let (runtime, policy) = (self.idempotency.runtime(), &self.policy);
                    let admission = match self.operation.claim {
                        ClaimMode::Lease => runtime.begin(subject, digest, policy).await,
                        ClaimMode::Transaction => {
                            Box::pin(runtime.begin_in_transaction(subject, digest, policy)).await
                        }
                    };
                    self.admitted(id, admission, handler).await
                }
                Some(limit) => Box::pin(self.look_up(id, digest, limit)).await,
            };
            let mut response = self.identified(id, response);
            // Boxed: keeps the future small, because most applications do not send it.
            if self.idempotency.settings().spoken.sends_expiry() {
                response = Box::pin(self.with_expiry(id, response)).await;
            }
            self.finished(&response);
            // A middleware that waits for the operation releases the permit itself.
            if !self.request.extensions().contains::<OperationStart>() {
                self.context.permit.release();
            }
            response
        };
        let future = Box::pin(future.instrument(span));
        GuardedResponse::keyed(future, context, idempotency, request, count)
    }

    /// Resolves to the response to a request whose claim has been decided.
    fn admitted(
        &self,
        id: RecordId,
        admission: Result<Admission, StoreError>,
        handler: HandlerFuture,
    ) -> Either<LocalBoxFuture<'_, HttpResponse>, Ready<HttpResponse>> {
        // Boxed: keeps the future of a replay small.
        match admission {
            Ok(Admission::Proceed(attempt)) => {
                Either::Left(Box::pin(self.attempt(attempt, handler)))
            }
            Ok(Admission::Rejected(verdict)) => Either::Right(ready(self.reject(verdict))),
            Err(error) => Either::Left(Box::pin(self.without_store(id, error, handler))),
        }
    }

    /// Adds the id of its record and the key to a response.
    fn identified(&self, id: RecordId, mut response: HttpResponse) -> HttpResponse {
        response.extensions_mut().insert(id);
        self.idempotency.echo_key(&self.request, Some(self.context.sent_key()), &mut response);
        response
    }

    async fn with_expiry(&self, id: RecordId, mut response: HttpResponse) -> HttpResponse {
        self.idempotency.add_expiry(&id, &mut response).await;
        response
    }

    /// Counts the request, and adds its outcome to its span.
    fn finished(&self, response: &HttpResponse) {
        self.count.of_response(response);
        if !Span::current().is_disabled()
            && let Some(outcome) = response.extensions().get::<RequestOutcome>()
        {
            Span::current().record("outcome", outcome.label());
        }
    }

    /// The response if a limit on operations is reached. The key may have been used before.
    async fn look_up(
        &self,
        id: RecordId,
        digest: RequestDigest,
        limit: ReachedLimit,
    ) -> HttpResponse {
        match self.idempotency.runtime().find(id, digest).await {
            Ok(Some(verdict)) => self.reject(verdict),
            Ok(None) => self.refusals().overloaded(limit),
            Err(error) => {
                let cause = cause(&error);
                tracing::warn!(
                    id = %id.short(), %error, cause,
                    "looking up a key at the limit of operations in flight failed; its request was \
                     refused"
                );
                self.refusals().overloaded(limit)
            }
        }
    }

    /// The response to a request that does not run, or whose attempt was fenced.
    fn reject(&self, verdict: Verdict) -> HttpResponse {
        let refusals = self.refusals();
        let rejection = match verdict {
            Verdict::Rejected(rejection) => rejection,
            Verdict::Lost { reused } => return refusals.lost(reused),
            Verdict::Unreadable => return refusals.unreadable(),
        };
        match rejection {
            Rejection::Completed(recording) => {
                match recording::replay(&recording, self.replay_marker()) {
                    Some((response, trace)) => {
                        self.idempotency.settings().traces.link(trace.as_ref());
                        RequestOutcome::Replayed.attach(response)
                    }
                    None => {
                        tracing::error!(
                            "a recording is not a valid HTTP response; it is not replayed, and its \
                         record is kept"
                        );
                        refusals.unreadable()
                    }
                }
            }
            Rejection::Held { newly, reference } => refusals.held(newly, reference),
            Rejection::Mismatch { .. } => {
                refusals.refuse(ProblemKind::KeyReused, RequestOutcome::KeyReused)
            }
            Rejection::InFlight { lease_left, reference } => match self.lookup_location() {
                Some(Ok(location)) => refusals.poll(&location, lease_left, reference.as_deref()),
                _ => refusals.in_flight(lease_left, reference),
            },
        }
    }

    /// The response if the key could not be claimed.
    ///
    /// The application can choose to run handlers unguarded only after a transient error: with a
    /// misconfigured store every request would run unguarded, and the mistake would stay unnoticed.
    async fn without_store(
        &self,
        id: RecordId,
        error: StoreError,
        handler: HandlerFuture,
    ) -> HttpResponse {
        let cause = cause(&error);
        let policy = self.idempotency.settings().when_store_fails;
        if error.is_transient() && policy == StoreFailurePolicy::RunUnguarded {
            tracing::error!(
                id = %id.short(), %error, cause,
                "claiming a key failed; its request runs unguarded"
            );
            let operation = Run::unguarded(id);
            self.context.set_operation(operation, &self.idempotency, self.operation);
            let time_limit = self.idempotency.time_limit(self.operation);
            return run_unguarded(&self.idempotency, &self.request, handler, time_limit).await;
        }
        if error.is_share_exceeded() {
            tracing::warn!(
                id = %id.short(), %error, cause,
                "a principal has used up its share of the store; its request was refused"
            );
            return self.refusals().overloaded(ReachedLimit::Principal);
        }
        tracing::error!(
            id = %id.short(), %error, cause, "claiming a key failed; its request was refused"
        );
        let kind = ProblemKind::of_store(&error);
        if kind == ProblemKind::RecordUnreadable {
            // The record may be that of an attempt that was run.
            return self.refusals().unreadable();
        }
        self.refusals().refuse_unrun(kind)
    }
}
