//! The answer of a guarded handler, on its way.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use actix_web::{HttpRequest, HttpResponse, rt::task::JoinHandle};
use futures_util::future::LocalBoxFuture;

use crate::{idempotency::Idempotency, outcome::Outcome, problem::Kind};

/// What [`Guard::run`](crate::__private::Guard::run) comes to.
pub struct GuardedAnswer(Way);

enum Way {
    Given(Option<HttpResponse>),
    /// Without a key: it ends where its connection does.
    Here(LocalBoxFuture<'static, HttpResponse>),
    /// In a task of its own, with what it takes to answer should that be cut off.
    Apart(JoinHandle<HttpResponse>, Idempotency, HttpRequest),
}

impl GuardedAnswer {
    pub(super) fn given(response: HttpResponse) -> Self {
        Self(Way::Given(Some(response)))
    }

    pub(super) fn here(work: impl Future<Output = HttpResponse> + 'static) -> Self {
        Self(Way::Here(Box::pin(work)))
    }

    pub(super) fn apart(task: JoinHandle<HttpResponse>, idempotency: Idempotency, request: HttpRequest) -> Self {
        Self(Way::Apart(task, idempotency, request))
    }
}

impl Future for GuardedAnswer {
    type Output = HttpResponse;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<HttpResponse> {
        match &mut self.0 {
            // actix does not poll a handler again once it is ready.
            Way::Given(response) => response.take().map_or(Poll::Pending, Poll::Ready),
            Way::Here(work) => work.as_mut().poll(cx),
            Way::Apart(task, idempotency, request) => Pin::new(task).poll(cx).map(|answer| {
                answer.unwrap_or_else(|error| {
                    tracing::error!(%error, "a guarded operation was cut off outside of its handler");
                    let problem = idempotency.problem(Kind::HandlerFailed, Kind::HandlerFailed.advice());
                    idempotency.render(&problem, Outcome::Panicked, request)
                })
            }),
        }
    }
}

impl fmt::Debug for GuardedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GuardedAnswer")
    }
}
