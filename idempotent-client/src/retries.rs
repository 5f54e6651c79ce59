//! When a request is sent again.

use std::time::Duration;

/// The limits and pauses of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retries {
    pub(crate) deadline: Duration,
    pub(crate) attempt_timeout: Duration,
    pub(crate) first_pause: Duration,
    pub(crate) longest_pause: Duration,
}

impl Retries {
    pub(crate) const DEFAULT: Self = Self {
        deadline: Duration::from_secs(60),
        attempt_timeout: Duration::from_secs(30),
        first_pause: Duration::from_millis(200),
        longest_pause: Duration::from_secs(10),
    };

    /// The pause after an attempt: exponential backoff with full jitter, and never less than the
    /// server asks for.
    pub(crate) fn pause(&self, attempts: u32, after: Option<Duration>) -> Duration {
        let doubled = 1_u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
        let longest = self.first_pause.saturating_mul(doubled).min(self.longest_pause);
        let jittered = longest.mul_f64(fastrand::f64());
        match after {
            None => jittered,
            // With jitter, so that clients with the same `Retry-After` do not come together.
            Some(after) => {
                let more = self.first_pause.min(self.longest_pause).mul_f64(fastrand::f64());
                after.max(jittered).saturating_add(more)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRIES: Retries = Retries::DEFAULT;

    #[test]
    fn the_longest_pause_doubles_up_to_its_limit() {
        for (attempts, longest) in
            [(1, 200), (2, 400), (3, 800), (6, 6_400), (7, 10_000), (99, 10_000)]
        {
            let longest = Duration::from_millis(longest);
            let pauses: Vec<_> = (0..1000).map(|_| RETRIES.pause(attempts, None)).collect();
            assert!(pauses.iter().all(|pause| *pause <= longest), "{attempts}");
            // Full jitter: the pauses fill the whole range.
            assert!(pauses.iter().any(|pause| *pause > longest.mul_f64(0.9)), "{attempts}");
            assert!(pauses.iter().any(|pause| *pause < longest.mul_f64(0.1)), "{attempts}");
        }
    }

    #[test]
    fn the_server_sets_the_least_pause() {
        let after = Duration::from_secs(20);
        let pauses: Vec<_> = (0..1000).map(|_| RETRIES.pause(9, Some(after))).collect();
        assert!(
            pauses.iter().all(|pause| *pause >= after && *pause <= after + RETRIES.first_pause)
        );
        assert!(pauses.iter().any(|pause| *pause != after), "without jitter");
        assert_eq!(RETRIES.pause(u32::MAX, Some(Duration::MAX)), Duration::MAX);
    }
}
