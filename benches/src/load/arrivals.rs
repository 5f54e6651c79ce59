//! When the requests of an open loop arrive.

use std::time::Duration;

/// The times of the arrivals, counted from the start of the load.
///
/// They form a Poisson process over all connections: the gaps are independent and exponentially
/// distributed, as those between requests of many clients that do not know of each other. At equal
/// gaps no two requests would ever arrive together, and a server below saturation would have no
/// queue.
pub(super) struct Arrivals {
    rate: f64,
    last: f64,
    random: fastrand::Rng,
}

impl Arrivals {
    /// Arrivals at an average of `rate` per second.
    pub(super) fn new(rate: f64, seed: u64) -> Self {
        Self { rate, last: 0.0, random: fastrand::Rng::with_seed(seed) }
    }
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        // The logarithm's argument is above 0.
        self.last -= (1.0 - self.random.f64()).ln() / self.rate;
        Some(Duration::from_secs_f64(self.last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(rate: f64, seed: u64) -> Vec<f64> {
        let times: Vec<_> = Arrivals::new(rate, seed).take(100_000).collect();
        times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect()
    }

    #[test]
    fn gaps_have_the_mean_and_the_deviation_of_an_exponential_distribution() {
        let gaps = gaps(2000.0, 1);
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean * 2000.0 - 1.0).abs() < 0.02, "the mean gap is {mean} s");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "the variance is {variance}");
    }

    #[test]
    fn the_seed_determines_the_arrivals() {
        assert_eq!(gaps(10.0, 1), gaps(10.0, 1));
        assert_ne!(gaps(10.0, 1), gaps(10.0, 2));
    }
}
