//! The handler at work, whatever its type.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use actix_web::{HttpRequest, HttpResponse};

use crate::{
    outcome::Replayable,
    recording::{REPLAY, REPLAYED},
};

/// A handler's future, as it looks from outside. This is compiled for each handler anew, so it is all that is.
pub(super) trait Answering {
    fn poll_answer(self: Pin<&mut Self>, cx: &mut Context<'_>, request: &HttpRequest) -> Poll<HttpResponse>;
}

impl<F: Future> Answering for F
where
    F::Output: Replayable,
{
    fn poll_answer(self: Pin<&mut Self>, cx: &mut Context<'_>, request: &HttpRequest) -> Poll<HttpResponse> {
        match self.poll(cx) {
            Poll::Ready(answer) => Poll::Ready(answer.into_response(request)),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// The handler's answer, on its way.
pub(super) struct Work {
    pub(super) handler: Pin<Box<dyn Answering>>,
    pub(super) request: HttpRequest,
}

impl Future for Work {
    type Output = HttpResponse;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<HttpResponse> {
        let Self { handler, request } = &mut *self;
        handler.as_mut().poll_answer(cx, request).map(|mut response| {
            // They say what became of the request, which the handler does not know.
            for marker in [REPLAYED, REPLAY] {
                response.headers_mut().remove(marker);
            }
            response
        })
    }
}
