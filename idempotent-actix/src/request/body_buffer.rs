//! The request body, which the guard reads before the other extractors.

use std::{
    cell::RefCell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use actix_web::{dev::Payload, error::PayloadError};
use bytes::Bytes;
use futures_util::{Stream, stream::poll_fn};

use crate::chunks::Chunks;

/// The body as far as the guard has read it.
#[derive(Default)]
pub(super) struct BodyBuffer {
    chunks: Chunks,
    end: Option<BodyEnd>,
    waker: Option<Waker>,
}

/// How reading the body ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyEnd {
    Complete,
    /// Cut off or over the limit: a reader gets an error instead of waiting forever.
    Broken,
}

/// Ends a payload after `left` bytes.
pub(super) fn end_after(payload: &mut Payload, mut left: usize) {
    let mut source = payload.take();
    let bounded = poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        let chunk = ready!(Pin::new(&mut source).poll_next(cx));
        Poll::Ready(chunk.map(|chunk| {
            chunk.map(|mut chunk| {
                chunk.truncate(left);
                left -= chunk.len();
                chunk
            })
        }))
    });
    *payload = Payload::Stream { payload: Box::pin(bounded) };
}

impl BodyBuffer {
    pub(super) fn push(&mut self, chunk: Bytes) {
        self.chunks.push(chunk);
    }

    pub(super) fn joined(&mut self) -> Bytes {
        self.chunks.joined()
    }

    /// Lets the other extractors read, and returns the waker of one that waits. The first call
    /// decides.
    pub(super) fn finish(&mut self, end: BodyEnd) -> Option<Waker> {
        self.chunks.join_small();
        self.end.get_or_insert(end);
        self.waker.take()
    }
}

/// The payload that the other extractors read.
pub(super) fn payload(body: Rc<RefCell<BodyBuffer>>) -> Payload {
    Payload::Stream { payload: Box::pin(BufferedBody(body)) }
}

/// Waits until the body is complete, then yields its chunks, each of which is freed by its reader.
struct BufferedBody(Rc<RefCell<BodyBuffer>>);

impl Stream for BufferedBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut body = self.0.borrow_mut();
        match body.end {
            Some(BodyEnd::Complete) => Poll::Ready(body.chunks.pop_front().map(Ok)),
            Some(BodyEnd::Broken) => Poll::Ready(Some(Err(PayloadError::Incomplete(None)))),
            None => {
                body.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
