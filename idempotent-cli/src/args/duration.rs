//! Durations on the command line.

use std::time::Duration;

use idempotent_core::report::{InvalidDuration, ShownDuration};

/// Reads a duration such as `10s`.
pub(super) fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    text.parse().map(|ShownDuration(duration)| duration)
}
