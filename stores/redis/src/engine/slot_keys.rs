//! The keys of what scripts change together with a record.
//!
//! A script can only change keys of one slot of a cluster. So each slot has its own key, which ends
//! with a number that puts it there; a single server, and a prefix with a hash tag, have one key.

use std::sync::{Arc, OnceLock};

use crate::net::{SLOTS, checksum, slot, slot_of_checksum, tag};

/// The keys of one kind, after the prefix. Each is shorter than the id of a record.
#[derive(Clone)]
pub(crate) struct SlotKeys(Arc<Keys>);

struct Keys {
    /// What all keys begin with.
    base: Vec<u8>,
    /// Whether each slot has its own key.
    of_slots: bool,
    /// For each slot, the number that puts a key there.
    numbers: OnceLock<Vec<u32>>,
}

impl SlotKeys {
    pub(crate) fn new(prefix: &str, name: &str, in_cluster: bool) -> Self {
        let of_slots = in_cluster && tag(prefix.as_bytes()).is_none();
        let base = [prefix, name, if of_slots { ":" } else { "" }].concat().into_bytes();
        Self(Arc::new(Keys { base, of_slots, numbers: OnceLock::new() }))
    }

    /// The key in the slot of a record's key.
    pub(crate) fn of(&self, record: &[u8]) -> Vec<u8> {
        if !self.0.of_slots {
            return self.0.base.clone();
        }
        let number = self.numbers().get(usize::from(slot(record))).copied().unwrap_or_default();
        self.numbered(number)
    }

    /// All keys.
    pub(crate) fn all(&self) -> Vec<Vec<u8>> {
        if !self.0.of_slots {
            return vec![self.0.base.clone()];
        }
        self.numbers().iter().map(|number| self.numbered(*number)).collect()
    }

    fn numbered(&self, number: u32) -> Vec<u8> {
        [&self.0.base, number.to_string().as_bytes()].concat()
    }

    fn numbers(&self) -> &[u32] {
        self.0.numbers.get_or_init(|| numbers(&self.0.base))
    }
}

/// Tries the numbers in their order, until there is one for each slot: about 170,000.
fn numbers(base: &[u8]) -> Vec<u32> {
    const NONE: u32 = u32::MAX;
    let (mut numbers, mut missing) = (vec![NONE; SLOTS], SLOTS);
    let base = checksum(0, base);
    // Of each number, from which those with one more digit follow.
    let mut checksums: Vec<u16> = Vec::new();
    for (number, digit) in (0..NONE).zip((b'0'..=b'9').cycle()) {
        let beginning = usize::try_from(number / 10).ok().filter(|beginning| *beginning > 0);
        let beginning = beginning.and_then(|number| checksums.get(number)).copied();
        let checksum = checksum(beginning.unwrap_or(base), &[digit]);
        checksums.push(checksum);
        if let Some(free) = numbers.get_mut(usize::from(slot_of_checksum(checksum)))
            && *free == NONE
        {
            *free = number;
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_of_a_cluster_has_its_own_key() {
        for prefix in ["idempotency:", "", "open{", "empty{}{a}", "}{"] {
            let keys = SlotKeys::new(prefix, "watched", true);
            let all = keys.all();
            let slots: Vec<_> = all.iter().map(|key| usize::from(slot(key))).collect();
            assert_eq!(slots, (0..SLOTS).collect::<Vec<_>>(), "{prefix}");
            assert!(all.iter().all(|key| key.len() < prefix.len() + 16), "{prefix}");
            for id in [[0; 32], [b'{'; 32], [b'}'; 32], [0xff; 32]] {
                let record = [prefix.as_bytes(), &id].concat();
                assert_eq!(slot(&keys.of(&record)), slot(&record), "{prefix}");
            }
        }
    }

    #[test]
    fn there_is_one_key_if_all_records_are_in_one_place() {
        for (prefix, in_cluster) in [("idempotency:", false), ("{payments}", true)] {
            let keys = SlotKeys::new(prefix, "watched", in_cluster);
            let only = [prefix, "watched"].concat().into_bytes();
            assert_eq!(keys.all(), std::slice::from_ref(&only));
            assert_eq!(keys.of(&[prefix.as_bytes(), &[7; 32]].concat()), only);
        }
    }
}
