//! The events of random histories.

use proptest::{collection::vec, prelude::*};

use crate::policy::Abandoned;

/// An event that concerns the key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// A new attempt claims the key.
    Claim {
        fingerprint: u8,
        lease: u8,
        ttl: u8,
        abandoned: Abandoned,
    },
    /// The claim of an earlier attempt arrives again.
    Resend {
        who: usize,
    },
    Renew {
        who: usize,
        lease: u8,
    },
    /// An attempt passes its point of no return.
    Hold {
        who: usize,
    },
    /// An attempt has done a step.
    Step {
        who: usize,
    },
    Complete {
        who: usize,
    },
    Release {
        who: usize,
    },
    Abandon {
        who: usize,
        policy: Abandoned,
    },
    /// An operator who saw an attempt resolves the key.
    Resolve {
        who: usize,
        done: bool,
    },
    Purge,
    /// Seconds pass.
    Wait {
        seconds: u8,
    },
    /// The store's clock is set back.
    SetBack {
        seconds: u16,
    },
}

/// A random history.
pub(super) fn acts() -> impl Strategy<Value = Vec<Act>> {
    let policy = || prop_oneof![3 => Just(Abandoned::Retry), 1 => Just(Abandoned::Hold)];
    // The number of attempts ago: mostly the latest attempts.
    let who = || prop_oneof![4 => Just(0usize), 2 => Just(1), 1 => 2..6usize];
    let fingerprint = prop_oneof![4 => Just(0u8), 1 => Just(1)];
    let claim = (fingerprint, 1..20u8, 20..60u8, policy()).prop_map(
        |(fingerprint, lease, ttl, abandoned)| Act::Claim { fingerprint, lease, ttl, abandoned },
    );
    let act = prop_oneof![
        6 => claim,
        1 => who().prop_map(|who| Act::Resend { who }),
        2 => (who(), 1..20u8).prop_map(|(who, lease)| Act::Renew { who, lease }),
        1 => who().prop_map(|who| Act::Hold { who }),
        1 => who().prop_map(|who| Act::Step { who }),
        2 => who().prop_map(|who| Act::Complete { who }),
        1 => who().prop_map(|who| Act::Release { who }),
        1 => (who(), policy()).prop_map(|(who, policy)| Act::Abandon { who, policy }),
        2 => (who(), any::<bool>()).prop_map(|(who, done)| Act::Resolve { who, done }),
        1 => Just(Act::Purge),
        5 => (1..30u8).prop_map(|seconds| Act::Wait { seconds }),
        1 => (1..600u16).prop_map(|seconds| Act::SetBack { seconds }),
    ];
    vec(act, 1..80)
}
