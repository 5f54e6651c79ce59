//! The operation of a request on its way to the extractors that want it.

use std::{
    cell::{OnceCell, RefCell},
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use actix_web::{
    Error, FromRequest, HttpMessage, HttpRequest,
    dev::Payload,
    error::{InternalError, PayloadError},
};

use super::{Operation, OperationContext};
use crate::{idempotency::Idempotency, outcome::RequestOutcome, problem::ProblemKind};

/// The operation of a request that a guard has let through. The guard leaves it in the extensions
/// of the request.
#[derive(Clone)]
pub(crate) enum RequestOperation {
    /// The request has a key.
    Keyed(Rc<OperationContext>),
    /// The request has no key.
    Unkeyed,
    /// The key is in the body, which is still being read.
    Pending(Rc<UnreadOperation>),
}

impl RequestOperation {
    /// `None` if the request's handler has no guard.
    pub(crate) fn of(request: &HttpRequest) -> Option<Self> {
        request.extensions().get::<Self>().cloned()
    }

    /// The operation, if it is known and there is one.
    #[cfg(feature = "_tx")]
    pub(crate) fn context(&self) -> Option<&OperationContext> {
        match self {
            Self::Keyed(context) => Some(context),
            Self::Unkeyed => None,
            Self::Pending(pending) => pending.outcome.get()?.as_ref().ok()?.as_deref(),
        }
    }
}

/// The operation of a request whose body is being read.
#[derive(Default)]
pub(crate) struct UnreadOperation {
    outcome: OnceCell<Result<Option<Rc<OperationContext>>, NotRead>>,
    wakers: RefCell<Vec<Waker>>,
}

/// The body could not be read, or its key was refused.
#[derive(Clone, Copy)]
pub(crate) struct NotRead;

impl UnreadOperation {
    /// Sets the operation, and wakes the extractors that wait for it. The first call decides.
    pub(crate) fn resolve(&self, outcome: Result<Option<Rc<OperationContext>>, NotRead>) {
        let _ = self.outcome.set(outcome);
        let wakers = self.wakers.take();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Result<Option<Rc<OperationContext>>, NotRead>> {
        if let Some(outcome) = self.outcome.get() {
            return Poll::Ready(outcome.clone());
        }
        let mut wakers = self.wakers.borrow_mut();
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// The future of the extractor [`Operation`].
pub struct OperationFuture {
    request: HttpRequest,
    operation: Option<RequestOperation>,
}

impl std::fmt::Debug for OperationFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OperationFuture")
    }
}

impl Future for OperationFuture {
    type Output = Result<Operation, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let context = match &self.operation {
            Some(RequestOperation::Keyed(context)) => Some(context.clone()),
            Some(RequestOperation::Pending(pending)) => match ready!(pending.poll(cx)) {
                Ok(context) => context,
                Err(NotRead) => return Poll::Ready(Err(PayloadError::Incomplete(None).into())),
            },
            Some(RequestOperation::Unkeyed) | None => None,
        };
        let operation = context.map(|context| Operation { context });
        Poll::Ready(operation.ok_or_else(|| without_key(&self.request)))
    }
}

impl FromRequest for Operation {
    type Error = Error;
    type Future = OperationFuture;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        OperationFuture { request: request.clone(), operation: RequestOperation::of(request) }
    }
}

/// The error of a handler that needs an operation, where its request has no key.
fn without_key(request: &HttpRequest) -> Error {
    let idempotency = match Idempotency::of(request) {
        Ok(idempotency) => idempotency,
        Err(error) => return error,
    };
    let kind = ProblemKind::KeyMissing;
    let problem = idempotency.problem(kind, kind.advice());
    let response = idempotency.render(&problem, RequestOutcome::Refused, request);
    let cause = "a handler takes an `Operation`, but its request has no key; take an \
                 `Option<Operation>`";
    InternalError::from_response(cause, response).into()
}
