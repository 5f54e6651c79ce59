//! How long the runtime waits for what.

use std::time::{Duration, Instant};

/// Longer waits are cut to this: no clock and no timer overflows, and nobody sees the difference.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The present moment of the machine's clock. It is not tokio's: an application may pause the time of its own tokio runtime in a
/// test, and that of the thread goes on.
pub(super) fn now() -> Instant {
    Instant::now()
}

/// The moment `by` later.
pub(super) fn after(moment: Instant, by: Duration) -> Instant {
    moment + by.min(LONGEST)
}

/// Between half of a pause and one and a half times it, so that those who started together do not go on together.
pub(super) fn jittered(pause: Duration) -> Duration {
    pause.min(LONGEST).mul_f64(0.5 + fastrand::f64())
}
