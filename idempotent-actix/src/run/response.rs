//! The future of a guarded handler's response.

use std::{
    cell::OnceCell,
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use actix_web::{HttpMessage, HttpRequest, HttpResponse};
use futures_util::future::LocalBoxFuture;
use tracing::Span;

use super::detach::detach;
use crate::{
    idempotency::Idempotency, observation::RequestCount, operation::OperationContext,
    outcome::RequestOutcome, problem::ProblemKind,
};

/// What [`Guard::run`](crate::__private::Guard::run) returns.
pub struct GuardedResponse(State);

enum State {
    /// The response is there, and nothing runs.
    Ready(Option<HttpResponse>),
    /// The request has no key: the handler ends with its connection.
    Unkeyed(LocalBoxFuture<'static, HttpResponse>),
    Keyed(KeyedOperation),
}

/// Lets a middleware find out whether the operation of its request has started.
///
/// It is in the request's extensions if a middleware waits for the operation's end. The operation
/// then counts as in flight until that middleware has ended, too.
#[derive(Clone, Default)]
pub(crate) struct OperationStart(Rc<OnceCell<Rc<OperationContext>>>);

impl OperationStart {
    pub(crate) fn has_started(&self) -> bool {
        self.0.get().is_some()
    }

    /// Notes that the middleware has ended, so that the operation is in flight no more.
    pub(crate) fn middleware_has_ended(&self) {
        if let Some(context) = self.0.get() {
            context.permit.release();
        }
    }
}

/// Claim, handler and recording of a request with a key.
///
/// They are polled in the connection's own future, where the task-locals and spans of middleware
/// are set. If the future is dropped after its first poll, which means that the client has
/// disconnected, it moves to a separate task, so that no claim is left without its handler and
/// no handler without its recording.
struct KeyedOperation {
    /// Taken out while it is polled, so that a future that panicked is not polled again.
    future: Option<LocalBoxFuture<'static, HttpResponse>>,
    started: bool,
    context: Rc<OperationContext>,
    span: Span,
    idempotency: Idempotency,
    request: HttpRequest,
    count: RequestCount,
}

impl GuardedResponse {
    /// A response without a run, which is counted.
    pub(super) fn ready(response: HttpResponse, count: &RequestCount) -> Self {
        count.of_response(&response);
        Self(State::Ready(Some(response)))
    }

    pub(super) fn unkeyed(future: impl Future<Output = HttpResponse> + 'static) -> Self {
        Self(State::Unkeyed(Box::pin(future)))
    }

    pub(super) fn keyed(
        future: LocalBoxFuture<'static, HttpResponse>,
        context: Rc<OperationContext>,
        idempotency: Idempotency,
        request: HttpRequest,
        count: RequestCount,
    ) -> Self {
        let (future, started, span) = (Some(future), false, Span::current());
        Self(State::Keyed(KeyedOperation {
            future,
            started,
            context,
            span,
            idempotency,
            request,
            count,
        }))
    }
}

impl Future for GuardedResponse {
    type Output = HttpResponse;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<HttpResponse> {
        match &mut self.0 {
            // actix does not poll a handler again once it is ready.
            State::Ready(response) => response.take().map_or(Poll::Pending, Poll::Ready),
            State::Unkeyed(future) => future.as_mut().poll(cx),
            State::Keyed(operation) => operation.poll(cx),
        }
    }
}

impl KeyedOperation {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<HttpResponse> {
        let Some(mut future) = self.future.take() else { return Poll::Pending };
        if !self.started {
            self.started = true;
            if let Some(start) = self.request.extensions().get::<OperationStart>() {
                // A request has one guarded handler, so it is not set yet.
                let _ = start.0.set(self.context.clone());
            }
        }
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(Poll::Ready(response)) => Poll::Ready(response),
            Ok(Poll::Pending) => {
                self.future = Some(future);
                Poll::Pending
            }
            Err(_) => {
                // Its destructors may panic too.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(future)));
                Poll::Ready(self.guard_panicked())
            }
        }
    }

    /// The response if the guard itself panicked: panics of the handler are caught before.
    fn guard_panicked(&self) -> HttpResponse {
        tracing::error!(
            "the guard panicked outside of the handler; the lease of the key will expire"
        );
        let problem = self
            .idempotency
            .problem(ProblemKind::HandlerFailed, ProblemKind::HandlerFailed.advice());
        self.count.of(RequestOutcome::HandlerFailed);
        self.idempotency.render(&problem, RequestOutcome::HandlerFailed, &self.request)
    }
}

impl Drop for KeyedOperation {
    fn drop(&mut self) {
        // Before the first poll nothing was done.
        if let Some(future) = self.future.take().filter(|_| self.started) {
            self.context.detached.set(true);
            detach(future, self.span.clone());
        }
    }
}

impl fmt::Debug for GuardedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GuardedResponse")
    }
}
