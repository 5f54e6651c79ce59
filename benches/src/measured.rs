//! The measurements in a table: the settings, the rows and their contestants.

use std::time::Duration;

use crate::{counting::Cost, load::Sample, rows::Row, server::Program, spread::Spread};

/// The number of runs, and the duration and connections of each.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) runs: usize,
    pub(crate) seconds: Duration,
    pub(crate) warmup: Duration,
    pub(crate) connections: usize,
}

/// A row and its measurements.
pub(crate) struct Measured {
    pub(crate) row: Row,
    pub(crate) contestants: Vec<Contestant>,
}

/// A server that does the work of a row, and its measurements.
pub(crate) struct Contestant {
    pub(crate) name: String,
    pub(crate) program: Program,
    pub(crate) runs: Vec<Sample>,
    pub(crate) cost: Cost,
}

impl Measured {
    pub(crate) fn layer(&self) -> &Contestant {
        &self.contestants[0]
    }

    pub(crate) fn floor(&self) -> &Contestant {
        &self.contestants[1]
    }

    /// The layer's throughput as a share of another contestant's, for each run.
    pub(crate) fn share_of(&self, other: &Contestant) -> Spread {
        Spread::of(
            self.layer()
                .runs
                .iter()
                .zip(&other.runs)
                .map(|(layer, other)| layer.rate() / other.rate()),
        )
    }
}

impl Contestant {
    pub(crate) fn rate(&self) -> f64 {
        Spread::of(self.runs.iter().map(|sample| sample.rate())).median
    }

    pub(crate) fn latency(&self, at: usize) -> f64 {
        Spread::of(self.runs.iter().map(|sample| sample.latency[at])).median
    }

    pub(crate) fn cpu(&self, process: &str) -> f64 {
        Spread::of(self.runs.iter().map(|sample| sample.cpu(process))).median
    }
}
