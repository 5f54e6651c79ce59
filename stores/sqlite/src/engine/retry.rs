//! How long a statement is repeated while the file is locked.

use std::time::{Duration, Instant};

use sqlx::SqliteConnection;

use crate::error::is_busy;
use idempotent_sql::ConnectionPool;

/// How long a busy call is repeated. If its caller drops a call, it continues for at most
/// [`BUSY_TIMEOUT`](crate::connect::connections::BUSY_TIMEOUT).
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer waits are cut to this, so that no clock overflows.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Until when a statement is repeated while other connections hold the lock.
pub(crate) struct RetryDeadline(Instant);

impl RetryDeadline {
    /// A shared connection has the application's busy timeout and gets one attempt.
    pub(crate) fn on(connections: &ConnectionPool<SqliteConnection>) -> Self {
        Self::after(if connections.is_own() { LOCK_TIMEOUT } else { Duration::ZERO })
    }

    pub(crate) fn after(limit: Duration) -> Self {
        Self(Instant::now() + limit.min(LONGEST_WAIT))
    }

    /// Whether a statement that failed with this error is repeated.
    pub(crate) fn allows_retry(&self, error: &sqlx::Error) -> bool {
        is_busy(error) && Instant::now() < self.0
    }
}
