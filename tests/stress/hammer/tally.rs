//! How often each event occurred.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

macro_rules! counts {
    ($($name:ident,)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Count {
            $($name,)+
        }

        impl Count {
            const ALL: &[Self] = &[$(Self::$name,)+];
        }
    };
}

counts! {
    Firsts,
    Takeovers,
    Resent,
    Deaths,
    DeathsInTransaction,
    AbandonedInTransaction,
    GrantedInTransaction,
    Pauses,
    Renewals,
    Completions,
    FencedCompletions,
    // An owner that was fenced or had completed made every other call, and each was fenced.
    FencedCalls,
    Replays,
    InFlight,
    Mismatches,
    // A claim that failed transiently.
    Unknown,
}

#[derive(Clone, Default)]
pub(crate) struct Tally(Arc<[AtomicUsize; Count::ALL.len()]>);

impl Tally {
    pub(crate) fn count(&self, what: Count) {
        self.0[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn of(&self, what: Count) -> usize {
        self.0[what as usize].load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(Count::ALL.iter().map(|count| (count, self.of(*count)))).finish()
    }
}
