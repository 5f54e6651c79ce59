//! The keys of a load. Like those of clients, they have the form of UUIDs and are in no order.

use super::KeyPattern;

/// A duplicate has one of the last `RECENT` keys, because clients retry soon.
const RECENT: u64 = 2000;

/// Generates the keys.
pub(super) struct Keys {
    pattern: KeyPattern,
    seed: u64,
    issued: u64,
    /// The number of latest keys that are not repeated, because they may not have a response yet.
    pending: u64,
    random: fastrand::Rng,
}

impl Keys {
    pub(super) fn new(pattern: KeyPattern, seed: u64, connections: usize) -> Self {
        Self {
            pattern,
            seed,
            issued: 0,
            pending: 2 * connections as u64,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// The keys that need a response before the measurement starts.
    pub(super) fn to_seed(&self) -> impl Iterator<Item = [u8; 36]> + use<> {
        let (seed, keys) =
            (self.seed, if let KeyPattern::Replays(keys) = self.pattern { keys } else { 0 });
        (0..keys).map(move |number| key(seed, number))
    }

    pub(super) fn next(&mut self) -> [u8; 36] {
        let earlier = self.issued.saturating_sub(self.pending);
        let number = match self.pattern {
            KeyPattern::Replays(keys) => self.random.u64(0..keys),
            KeyPattern::Mixed(share) if earlier > 0 && self.random.f64() < share => {
                self.random.u64(earlier.saturating_sub(RECENT)..earlier)
            }
            KeyPattern::Fresh | KeyPattern::Mixed(_) => {
                self.issued += 1;
                self.issued - 1
            }
        };
        key(self.seed, number)
    }
}

/// The key with this number.
pub(crate) fn key(seed: u64, number: u64) -> [u8; 36] {
    const HEX: [u8; 16] = *b"0123456789abcdef";
    let halves = [mix(seed ^ mix(number)), mix(mix(seed).wrapping_add(number))];
    let nibble = |at: usize| HEX[(halves[at / 16] >> (4 * (at % 16)) & 15) as usize];
    let (mut key, mut at) = ([b'-'; 36], 0);
    for (place, byte) in key.iter_mut().enumerate() {
        if !matches!(place, 8 | 13 | 18 | 23) {
            *byte = nibble(at);
            at += 1;
        }
    }
    key
}

/// A step of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn fresh_keys_differ_by_number_and_by_seed() {
        let of = |seed| {
            let mut keys = Keys::new(KeyPattern::Fresh, seed, 4);
            (0..1000).map(|_| keys.next()).collect::<Vec<_>>()
        };
        let all: HashSet<_> = [of(1), of(2)].concat().into_iter().collect();
        assert_eq!(all.len(), 2000);
        assert!(all.iter().all(|key| key.iter().filter(|byte| **byte == b'-').count() == 4));
    }

    #[test]
    fn each_pattern_repeats_the_keys_that_it_describes() {
        let mut keys = Keys::new(KeyPattern::Replays(3), 7, 4);
        let seeded: HashSet<_> = keys.to_seed().collect();
        assert_eq!(seeded.len(), 3);
        assert!((0..100).all(|_| seeded.contains(&keys.next())));

        let mut keys = Keys::new(KeyPattern::Mixed(0.9), 7, 1);
        let sent: HashSet<_> = (0..1000).map(|_| keys.next()).collect();
        assert!((50..200).contains(&sent.len()), "{} of 1000 keys are new", sent.len());
    }
}
