//! A cheap hash of the names of operations.

use std::hash::Hasher;

/// Hashes the names of operations, several times in each request. Clients cannot choose the names
/// that are in the map, so no request makes them collide.
#[derive(Default)]
pub(super) struct NameHasher(u64);

impl NameHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        self.add(rest.iter().fold(1, |word, byte| (word << 8) | u64::from(*byte)));
    }

    fn write_u8(&mut self, byte: u8) {
        self.add(byte.into());
    }

    /// The best bits of a product are the upper ones; a map uses the lower ones too.
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}
