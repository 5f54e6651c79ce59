//! A hasher of digests.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Hashes record ids and principals, which are SHA-256 digests already: one multiplication of 16 of
/// their bytes. The random seeds keep a client that chooses its keys from choosing their places in
/// the maps.
#[derive(Clone, Copy)]
pub(super) struct DigestHashBuilder([u64; 2]);

impl DigestHashBuilder {
    pub(super) fn random() -> Self {
        let random = RandomState::new();
        Self([random.hash_one(0), random.hash_one(1)])
    }
}

impl BuildHasher for DigestHashBuilder {
    type Hasher = DigestHasher;

    fn build_hasher(&self) -> DigestHasher {
        DigestHasher { seed: *self, hash: 0 }
    }
}

pub(super) struct DigestHasher {
    seed: DigestHashBuilder,
    hash: u64,
}

impl Hasher for DigestHasher {
    fn write(&mut self, digest: &[u8]) {
        let DigestHashBuilder([one, two]) = self.seed;
        if let Some(([first, second], _)) = digest.as_chunks::<8>().0.split_first_chunk::<2>() {
            let (first, second) =
                (u64::from_le_bytes(*first) ^ one, u64::from_le_bytes(*second) ^ two);
            let product = u128::from(first) * u128::from(second);
            self.hash = fold(product);
        }
    }

    /// The length of an array, which is always the same.
    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.hash
    }
}

fn fold(product: u128) -> u64 {
    let [a, b, c, d, e, f, g, h, low @ ..] = product.to_be_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h]) ^ u64::from_be_bytes(low)
}
