//! Time limits of the statements of the store.

use std::time::Duration;

/// How long a call waits for the server's response to one statement.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for a batch: its steps are then executed alone, and have most of their callers' time
/// left.
pub(crate) const BATCH_RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a handler's statement may continue after the handler was dropped.
pub(crate) const STATEMENT_GRACE: Duration = Duration::from_secs(1);
/// How often the server checks whether the client of a running statement is still connected
/// (Postgres 14 and later).
pub(crate) const CLIENT_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a statement of the store waits for another transaction, in the form in which the server
/// reports it. A call that needs longer repeats the statement or returns that the key is in flight,
/// and its connection is free for others meanwhile.
pub(crate) const LOCK_TIMEOUT: &str = "100ms";
/// How long a statement of the store may take on the server: slightly less than its caller waits.
pub(crate) const STATEMENT_TIMEOUT: &str = "9s";

/// The time limits of statements on the server.
#[derive(Clone, Copy)]
pub(crate) struct ServerLimits {
    /// How long a statement waits for another transaction.
    pub(crate) lock: &'static str,
    /// How long it may take in all.
    pub(crate) statement: &'static str,
}

impl ServerLimits {
    /// For single statements.
    pub(crate) const STEP: Self = Self { lock: LOCK_TIMEOUT, statement: STATEMENT_TIMEOUT };
    /// For renewals, whose connection must be free for the next one.
    pub(crate) const RENEWAL: Self = Self { lock: LOCK_TIMEOUT, statement: "3s" };
    /// For batches. One that exceeds a limit is taken apart, so that it delays its steps by a small
    /// part of the time that their callers have.
    pub(crate) const BATCH: Self = Self { lock: "20ms", statement: "1s" };

    /// As settings of a session.
    pub(crate) fn settings(self) -> [(&'static str, &'static str); 2] {
        [("lock_timeout", self.lock), ("statement_timeout", self.statement)]
    }
}
