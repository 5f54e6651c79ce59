//! A body on its way from the guard to the other extractors.

use std::{
    cell::RefCell,
    collections::VecDeque,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use actix_web::{dev::Payload, error::PayloadError};
use bytes::{Bytes, BytesMut};
use futures_util::Stream;

/// Chunks below this size are joined up to this size.
const SMALL: usize = 4096;

/// What the guard has read.
#[derive(Default)]
pub(super) struct Refill {
    chunks: VecDeque<Bytes>,
    /// Small chunks that came last, joined.
    small: BytesMut,
    whole: bool,
    waker: Option<Waker>,
}

impl Refill {
    /// Adds a chunk. A chunk costs more than its bytes, and its sender chooses its size: in chunks of one byte, a body would take
    /// more than thirty times its size.
    pub(super) fn push(&mut self, chunk: Bytes) {
        if chunk.len() >= SMALL {
            self.join_small();
            self.chunks.push_back(chunk);
            return;
        }
        self.small.extend_from_slice(&chunk);
        if self.small.len() >= SMALL {
            self.join_small();
        }
    }

    fn join_small(&mut self) {
        if !self.small.is_empty() {
            self.chunks.push_back(self.small.split().freeze());
        }
    }

    /// Joins all chunks into one, which then is the only one.
    pub(super) fn joined(&mut self) -> Bytes {
        self.join_small();
        if self.chunks.len() > 1 {
            let mut whole = BytesMut::with_capacity(self.chunks.iter().map(Bytes::len).sum());
            self.chunks.drain(..).for_each(|chunk| whole.extend_from_slice(&chunk));
            self.chunks.push_back(whole.freeze());
        }
        self.chunks.front().cloned().unwrap_or_default()
    }

    /// Lets the other extractors read; gives back what wakes the one that waits.
    pub(super) fn finish(&mut self) -> Option<Waker> {
        self.join_small();
        self.whole = true;
        self.waker.take()
    }
}

/// The payload that the other extractors find.
pub(super) fn payload(body: Rc<RefCell<Refill>>) -> Payload {
    Payload::Stream { payload: Box::pin(Refilled(body)) }
}

/// It waits until the body is whole, then gives its chunks away one by one, so that no chunk outlives its reading.
struct Refilled(Rc<RefCell<Refill>>);

impl Stream for Refilled {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut body = self.0.borrow_mut();
        if body.whole {
            Poll::Ready(body.chunks.pop_front().map(Ok))
        } else {
            body.waker = Some(cx.waker().clone());
            Poll::Pending
        }
    }
}
