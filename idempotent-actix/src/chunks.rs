//! A body in chunks that take little more memory than their bytes.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Chunks of fewer bytes are joined into chunks of this size, except the first.
const SMALL: usize = 4096;

/// A body in chunks.
#[derive(Default)]
pub(crate) struct Chunks {
    /// Beside the others, so that a body of one chunk needs no queue.
    first: Option<Bytes>,
    others: VecDeque<Bytes>,
    /// The last small chunks, joined.
    small: BytesMut,
}

impl Chunks {
    /// Adds a chunk.
    ///
    /// A chunk takes more memory than its bytes, and its sender chooses its size: in chunks of one
    /// byte, a body would take more than thirty times its size. The first chunk is kept as it is,
    /// because most bodies have no other.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        let is_first = self.is_empty() && self.small.is_empty();
        if is_first || chunk.len() >= SMALL {
            self.join_small();
            self.append(chunk);
            return;
        }
        self.small.extend_from_slice(&chunk);
        if self.small.len() >= SMALL {
            self.join_small();
        }
    }

    pub(crate) fn join_small(&mut self) {
        if !self.small.is_empty() {
            let joined = self.small.split().freeze();
            self.append(joined);
        }
    }

    /// Removes and returns the first chunk, except of those that are not joined yet.
    pub(crate) fn pop_front(&mut self) -> Option<Bytes> {
        self.first.take().or_else(|| self.others.pop_front())
    }

    /// Joins all chunks into one and returns it.
    pub(crate) fn joined(&mut self) -> Bytes {
        self.join_small();
        if !self.others.is_empty() {
            let length = self.first.iter().chain(&self.others).map(Bytes::len).sum();
            let mut whole = BytesMut::with_capacity(length);
            while let Some(chunk) = self.pop_front() {
                whole.extend_from_slice(&chunk);
            }
            self.first = Some(whole.freeze());
        }
        self.first.clone().unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.is_empty()
    }

    fn append(&mut self, chunk: Bytes) {
        if self.is_empty() {
            self.first = Some(chunk);
        } else {
            self.others.push_back(chunk);
        }
    }
}
