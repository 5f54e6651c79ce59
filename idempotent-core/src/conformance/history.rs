//! Histories: sequences of actions on a store.

use crate::policy::Abandoned;

/// One action of a history.
///
/// A history has two keys, four owners and two fingerprints. Actions refer to them by number; any
/// other number is reduced modulo their count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// An owner claims a key.
    Claim {
        /// Which key.
        key: u8,
        /// Which owner. If other owners have claimed since, or the attempt has ended, the claim is
        /// a new attempt with an old token, which stores must accept.
        owner: u8,
        /// Which of two fingerprints.
        fingerprint: u8,
        /// The length of the lease: this number modulo 4, plus a half, in ticks.
        lease: u8,
        /// The ttl: this number modulo 8, plus a half, in ticks.
        ttl: u8,
        /// What happens to the key if the attempt is abandoned.
        abandoned: Abandoned,
    },
    /// An owner renews both keys in one call.
    Renew {
        /// Which owner.
        owner: u8,
        /// The length of the lease: this number modulo 4, plus a half, in ticks.
        lease: u8,
    },
    /// An owner adds a note.
    Note {
        /// Which key.
        key: u8,
        /// Which owner.
        owner: u8,
        /// Which note, by number.
        note: u8,
    },
    /// An owner completes the operation.
    Complete {
        /// Which key.
        key: u8,
        /// Which owner.
        owner: u8,
        /// Which recording, by number.
        recording: u8,
    },
    /// An owner releases a key.
    Release {
        /// Which key.
        key: u8,
        /// Which owner.
        owner: u8,
    },
    /// An owner abandons its attempt.
    Abandon {
        /// Which key.
        key: u8,
        /// Which owner.
        owner: u8,
        /// What happens to the key.
        policy: Abandoned,
    },
    /// An operator who saw this owner in the record resolves a key.
    Resolve {
        /// Which key.
        key: u8,
        /// Which owner.
        owner: u8,
        /// Which recording, by number; `None` releases the key.
        recording: Option<u8>,
    },
    /// An operator who saw this owner in the record removes it. Left out if the store has no
    /// [`Administration`](crate::store::Administration), as the next two.
    Remove {
        /// Which key.
        key: u8,
        /// Which owner.
        owner: u8,
        /// Whether it is removed also if it is held or in flight.
        live: bool,
    },
    /// An operator who saw this owner in the record replaces its bytes.
    Replace {
        /// Which key.
        key: u8,
        /// Which owner.
        owner: u8,
        /// Which bytes they become, by number.
        becomes: u8,
        /// Whether the bytes that it saw are those of the record.
        seen: bool,
    },
    /// The runtime adds an entry to the history of a record.
    Append {
        /// Which key.
        key: u8,
        /// Which entry: the number of its kind, modulo the number of kinds.
        kind: u8,
    },
    /// The store purges expired records.
    Purge,
    /// One tick passes.
    Advance,
    /// The store's clock is set back, if possible.
    SetBack {
        /// The number of ticks, modulo 8.
        ticks: u8,
    },
}

/// Returns a random history with this number of actions. The same seed gives the same history.
#[must_use]
pub fn history(seed: u64, actions: usize) -> Vec<Action> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..actions).map(|_| random_action(&mut random)).collect()
}

fn random_action(random: &mut fastrand::Rng) -> Action {
    let [key, owner, recording] = [(); 3].map(|()| random.u8(..));
    let policy = if random.u8(..4) == 0 { Abandoned::Hold } else { Abandoned::Retry };
    match random.u8(..24) {
        0..=4 => {
            // One claim in four is of another request.
            let fingerprint = u8::from(random.u8(..4) == 0);
            Action::Claim {
                key,
                owner,
                fingerprint,
                lease: random.u8(..),
                ttl: random.u8(..),
                abandoned: policy,
            }
        }
        5 => Action::Renew { owner, lease: random.u8(..) },
        6 | 7 => Action::Complete { key, owner, recording },
        8 => Action::Release { key, owner },
        9 => Action::Abandon { key, owner, policy },
        10 => Action::Resolve { key, owner, recording: random.bool().then_some(recording) },
        11 => Action::Purge,
        13..=15 => Action::Note { key, owner, note: random.u8(..) },
        12 => Action::SetBack { ticks: random.u8(1..3) },
        16 => Action::Remove { key, owner, live: random.u8(..4) == 0 },
        17 => Action::Replace { key, owner, becomes: recording, seen: random.u8(..4) > 0 },
        18 => Action::Append { key, kind: recording },
        _ => Action::Advance,
    }
}
