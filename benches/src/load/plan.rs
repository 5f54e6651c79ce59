//! The plan of a load.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::cpu;

/// Which keys the load sends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum KeyPattern {
    /// New keys, each of them once.
    Fresh,
    /// This many keys, all of which were completed before the measurement.
    Replays(u64),
    /// New keys, and in this share of all requests a key that was sent before.
    Mixed(f64),
}

/// Processes whose processor time is measured, by name. The times of processes of one name are
/// added.
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
        let mut sums = BTreeMap::new();
        for ((name, _), took) in self.0.iter().zip(took) {
            *sums.entry(name.clone()).or_default() += took;
        }
        sums
    }
}

/// The plan of a load, as it is passed to the process of the load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The servers. The connections are distributed among them evenly.
    pub(crate) to: Vec<SocketAddr>,
    /// Whether each server has a separate principal. Otherwise there is one principal.
    pub(crate) separate_principals: bool,
    pub(crate) pattern: KeyPattern,
    pub(crate) connections: usize,
    /// If set, the load is an open loop: requests arrive at this rate per second, however fast the
    /// server responds. Otherwise each connection sends its next request after a response.
    pub(crate) arrivals: Option<f64>,
    pub(crate) warmup: Duration,
    pub(crate) duration: Duration,
    /// If set, the load ends after this number of requests instead of after `duration`.
    pub(crate) requests: Option<u64>,
    /// Each seed generates different keys.
    pub(crate) seed: u64,
    /// Whether an earlier load has completed the keys to replay.
    pub(crate) seeded: bool,
    pub(crate) watched: Watched,
    /// Whether to poll without sleeping, so that a response does not have to wake the load. Needs a
    /// separate processor for the load.
    pub(crate) busy_poll: bool,
}

impl Plan {
    /// A load on one server: 64 connections, and nothing before the measurement.
    pub(crate) fn new(to: SocketAddr, pattern: KeyPattern) -> Self {
        Self {
            to: vec![to],
            separate_principals: false,
            pattern,
            connections: 64,
            arrivals: None,
            warmup: Duration::ZERO,
            duration: Duration::ZERO,
            requests: None,
            seed: 1,
            seeded: false,
            watched: Watched::default(),
            busy_poll: false,
        }
    }
}
