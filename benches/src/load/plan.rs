//! The plan of a load.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::cpu;

/// Which keys are sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum KeyPattern {
    /// Each key once.
    Fresh,
    /// This many keys, all of which were completed before the measurement.
    Replays(u64),
    /// New keys and, as this share of all requests, keys that were completed before.
    Mixed(f64),
}

/// Processes whose processor time is measured, by name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Watched(pub(crate) Vec<(String, u32)>);

impl Watched {
    pub(super) fn times(&self) -> Vec<Duration> {
        self.0.iter().map(|(_, root)| cpu::time_of_tree(*root)).collect()
    }

    pub(super) fn since(&self, before: &[Duration]) -> BTreeMap<String, f64> {
        let took = self
            .times()
            .into_iter()
            .zip(before)
            .map(|(now, before)| now.saturating_sub(*before).as_secs_f64());
        self.0.iter().map(|(name, _)| name.clone()).zip(took).collect()
    }
}

/// A load, as it is passed to its process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) to: SocketAddr,
    pub(crate) pattern: KeyPattern,
    pub(crate) connections: usize,
    pub(crate) warmup: Duration,
    pub(crate) duration: Duration,
    /// A number of requests instead of a duration.
    pub(crate) requests: Option<u64>,
    /// Another seed gives other keys.
    pub(crate) seed: u64,
    /// The keys to replay are completed already.
    pub(crate) seeded: bool,
    pub(crate) watched: Watched,
    /// Poll without sleeping, so that no response has to wake the load; needs its own processor.
    pub(crate) awake: bool,
}
