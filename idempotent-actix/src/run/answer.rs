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
use crate::{idempotency::Idempotency, operation::Slot, outcome::RequestOutcome, problem::ProblemKind};

/// What [`Guard::run`](crate::__private::Guard::run) returns.
pub struct GuardedAnswer(Way);

enum Way {
    /// The response is there, and nothing runs.
    Given(Option<HttpResponse>),
    /// The request has no key: the handler ends with its connection.
    Unkeyed(LocalBoxFuture<'static, HttpResponse>),
    Keyed(Keyed),
}

/// The operation of a request, once it has begun; in the request's extensions where a middleware waits for its end. The operation then
/// counts as in flight until that middleware has ended, too.
#[derive(Clone, Default)]
pub(crate) struct Admission(Rc<OnceCell<Rc<Slot>>>);

impl Admission {
    pub(crate) fn has_begun(&self) -> bool {
        self.0.get().is_some()
    }

    /// The middleware has ended.
    pub(crate) fn end(&self) {
        if let Some(slot) = self.0.get() {
            slot.counted.end();
        }
    }
}

/// Claim, work and recording of a request with a key.
///
/// They are polled in the connection's own future, where the task-locals and spans of middleware are set. Dropped after its first poll,
/// that is when the client disconnects, the future moves to a task of its own, so that no claim is left without its work and no work
/// without its recording.
struct Keyed {
    /// Taken out while it is polled, so that work that panicked is not polled again.
    work: Option<LocalBoxFuture<'static, HttpResponse>>,
    begun: bool,
    slot: Rc<Slot>,
    span: Span,
    idempotency: Idempotency,
    request: HttpRequest,
}

impl GuardedAnswer {
    pub(super) fn given(response: HttpResponse) -> Self {
        Self(Way::Given(Some(response)))
    }

    pub(super) fn unkeyed(work: impl Future<Output = HttpResponse> + 'static) -> Self {
        Self(Way::Unkeyed(Box::pin(work)))
    }

    pub(super) fn keyed(
        work: LocalBoxFuture<'static, HttpResponse>,
        slot: Rc<Slot>,
        idempotency: Idempotency,
        request: HttpRequest,
    ) -> Self {
        Self(Way::Keyed(Keyed { work: Some(work), begun: false, slot, span: Span::current(), idempotency, request }))
    }
}

impl Future for GuardedAnswer {
    type Output = HttpResponse;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<HttpResponse> {
        match &mut self.0 {
            // actix does not poll a handler again once it is ready.
            Way::Given(response) => response.take().map_or(Poll::Pending, Poll::Ready),
            Way::Unkeyed(work) => work.as_mut().poll(cx),
            Way::Keyed(keyed) => keyed.poll(cx),
        }
    }
}

impl Keyed {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<HttpResponse> {
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        if !self.begun {
            self.begun = true;
            if let Some(begun) = self.request.extensions().get::<Admission>() {
                // A request has one guarded handler.
                let _ = begun.0.set(self.slot.clone());
            }
        }
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Ready(response)) => Poll::Ready(response),
            Ok(Poll::Pending) => {
                self.work = Some(work);
                Poll::Pending
            }
            Err(_) => {
                // Its destructors may panic too.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(work)));
                Poll::Ready(self.panicked())
            }
        }
    }

    /// The response where the layer itself panicked: a panic of the handler has been caught before.
    fn panicked(&self) -> HttpResponse {
        tracing::error!("a guarded operation panicked outside of its handler; its lease expires");
        let problem = self.idempotency.problem(ProblemKind::HandlerFailed, ProblemKind::HandlerFailed.advice());
        self.idempotency.render(&problem, RequestOutcome::HandlerFailed, &self.request)
    }
}

impl Drop for Keyed {
    fn drop(&mut self) {
        // Before the first poll nothing was done.
        if let Some(work) = self.work.take().filter(|_| self.begun) {
            self.slot.detached.set(true);
            detach(work, self.span.clone());
        }
    }
}

impl fmt::Debug for GuardedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GuardedAnswer")
    }
}
