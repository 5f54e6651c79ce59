//! The time of day. A key's age must survive a restart, so it cannot be measured otherwise.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[expect(clippy::disallowed_methods, reason = "the only place that reads the time of day")]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// The time since 1970; zero before it.
pub(crate) fn since_epoch(at: SystemTime) -> Duration {
    at.duration_since(UNIX_EPOCH).unwrap_or_default()
}
