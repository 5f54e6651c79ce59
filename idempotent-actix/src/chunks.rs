//! A body in chunks that take little more memory than their bytes.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Chunks of fewer bytes are joined into chunks of this size, except the first.
const SMALL: usize = 4096;

/// A body in chunks.
#[derive(Default)]
pub(crate) struct Chunks {
    pub(crate) chunks: VecDeque<Bytes>,
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

    /// Joins all chunks into one and returns it.
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
