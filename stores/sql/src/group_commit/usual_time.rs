//! How long a batch usually takes.

use std::time::Duration;

/// How many times longer than usual a batch takes that is late.
const LATE: u32 = 4;
/// No batch is late before.
const LEAST: Duration = Duration::from_millis(50);
/// Every batch is late after that, however long the batches before it have taken.
const MOST: Duration = Duration::from_millis(500);
/// The first batches open connections and prepare statements.
const FIRST: Duration = Duration::from_millis(50);
/// How many batches the average follows.
const WEIGHT: u32 = 8;

/// A moving average of the time that batches take.
pub(super) struct UsualTime(Duration);

impl Default for UsualTime {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl UsualTime {
    /// After which time a batch is late.
    pub(super) fn late_after(&self) -> Duration {
        (self.0 * LATE).clamp(LEAST, MOST)
    }

    /// Notes that a batch has taken this long. A late one counts as if it had just become late: the
    /// average follows a server that has become slower, but not a single batch that hung.
    pub(super) fn observe(&mut self, took: Duration) {
        self.0 = (self.0 * (WEIGHT - 1) + took.min(self.late_after())) / WEIGHT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_late_after_a_small_multiple_of_the_usual_time() {
        let ms = Duration::from_millis;
        let mut usual = UsualTime::default();
        let after = |usual: &mut UsualTime, took, times| {
            (0..times).for_each(|_| usual.observe(took));
            usual.late_after()
        };
        assert_eq!(after(&mut usual, ms(5), 50), LEAST);
        assert_eq!(after(&mut usual, ms(60_000), 1), LEAST, "a batch that hung changes little");
        let slower = after(&mut usual, ms(40), 50);
        assert!((ms(150)..ms(170)).contains(&slower), "{slower:?}");
        assert_eq!(after(&mut usual, ms(900), 50), MOST);
        assert_eq!(after(&mut usual, ms(5), 50), LEAST, "the server is as fast as before");
    }
}
