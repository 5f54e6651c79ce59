//! A body on its way from the guard to the other extractors.

use std::{
    cell::RefCell,
    collections::VecDeque,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use actix_web::{dev::Payload, error::PayloadError};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream::poll_fn};

/// Chunks below this size are joined up to this size, but for the first.
const SMALL: usize = 4096;

/// Bytes that come in chunks.
#[derive(Default)]
pub(crate) struct Pieces {
    pub(crate) chunks: VecDeque<Bytes>,
    /// Small chunks that came last, joined.
    small: BytesMut,
}

/// What the guard has read.
#[derive(Default)]
pub(super) struct Refill {
    pieces: Pieces,
    end: Option<End>,
    waker: Option<Waker>,
}

/// How the reading ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Whole,
    /// Cut off or over the limit: whoever reads on is told, and not left waiting.
    Broken,
}

impl Pieces {
    /// Adds a chunk. A chunk costs more than its bytes, and its sender chooses its size: in chunks of one byte, a body would take
    /// more than thirty times its size. The first is kept as it is, for most bodies have no other.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        let first = self.chunks.is_empty() && self.small.is_empty();
        if first || chunk.len() >= SMALL {
            self.join_small();
            self.chunks.push_back(chunk);
            return;
        }
        self.small.extend_from_slice(&chunk);
        if self.small.len() >= SMALL {
            self.join_small();
        }
    }

    pub(crate) fn join_small(&mut self) {
        if !self.small.is_empty() {
            self.chunks.push_back(self.small.split().freeze());
        }
    }

    /// Joins all chunks into one, which then is the only one.
    pub(crate) fn joined(&mut self) -> Bytes {
        self.join_small();
        if self.chunks.len() > 1 {
            let mut whole = BytesMut::with_capacity(self.chunks.iter().map(Bytes::len).sum());
            self.chunks.drain(..).for_each(|chunk| whole.extend_from_slice(&chunk));
            self.chunks.push_back(whole.freeze());
        }
        self.chunks.front().cloned().unwrap_or_default()
    }
}

/// Lets a payload end after so many bytes.
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

impl Refill {
    pub(super) fn push(&mut self, chunk: Bytes) {
        self.pieces.push(chunk);
    }

    pub(super) fn joined(&mut self) -> Bytes {
        self.pieces.joined()
    }

    /// Lets the other extractors read, unless that was settled before; gives back what wakes the one that waits.
    pub(super) fn finish(&mut self, end: End) -> Option<Waker> {
        self.pieces.join_small();
        self.end.get_or_insert(end);
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
        match body.end {
            Some(End::Whole) => Poll::Ready(body.pieces.chunks.pop_front().map(Ok)),
            Some(End::Broken) => Poll::Ready(Some(Err(PayloadError::Incomplete(None)))),
            None => {
                body.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
