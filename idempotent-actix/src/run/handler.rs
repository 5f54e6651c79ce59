//! The handler's future, independent of its type, and its time limit.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use actix_web::{HttpRequest, HttpResponse, rt};
use futures_util::{FutureExt, future::Either};

use crate::{
    idempotency::Idempotency,
    not_run::NOT_RUN,
    outcome::Replayable,
    recording::{REPLAY, REPLAYED},
};

/// A handler's future behind a pointer. It is compiled for each handler, so it does nothing more.
pub(crate) trait ErasedHandler {
    fn poll_response(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        request: &HttpRequest,
    ) -> Poll<HttpResponse>;
}

impl<F: Future> ErasedHandler for F
where
    F::Output: Replayable,
{
    fn poll_response(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        request: &HttpRequest,
    ) -> Poll<HttpResponse> {
        match self.poll(cx) {
            Poll::Ready(output) => Poll::Ready(output.into_response(request)),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Resolves to the handler's response.
pub(super) struct HandlerFuture {
    pub(super) handler: Pin<Box<dyn ErasedHandler>>,
    pub(super) request: HttpRequest,
    pub(super) idempotency: Idempotency,
}

impl Future for HandlerFuture {
    type Output = HttpResponse;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<HttpResponse> {
        let Self { handler, request, idempotency } = &mut *self;
        handler.as_mut().poll_response(cx, request).map(|mut response| {
            // Only the guard knows whether a response is a replay, and whether nothing was run.
            let marker = &idempotency.settings().spoken.marker.0;
            let markers = [marker, &REPLAYED, &REPLAY, &NOT_RUN];
            if response.headers().keys().any(|name| markers.contains(&name)) {
                for marker in markers {
                    response.headers_mut().remove(marker);
                }
            }
            response
        })
    }
}

/// The output of `future`, unless the time limit passes first. Then `future` is dropped, and a
/// panic of its destructors is caught.
pub(super) fn within<T>(
    time_limit: Option<Duration>,
    future: impl Future<Output = T>,
) -> impl Future<Output = Option<T>> {
    let Some(limit) = time_limit else { return Either::Left(future.map(Some)) };
    // Boxed: keeps the future of operations without a time limit small.
    Either::Right(Box::pin(async move {
        let mut future = Box::pin(future);
        let output = rt::time::timeout(limit, future.as_mut()).await.ok();
        if output.is_none() && catch_unwind(AssertUnwindSafe(|| drop(future))).is_err() {
            tracing::error!(
                "a handler exceeded its time limit, and a destructor panicked when it was dropped"
            );
        }
        output
    }))
}
