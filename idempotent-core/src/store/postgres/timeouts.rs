//! Time limits of the statements of the store.

use std::time::Duration;

/// How long a call waits for the server's response to one statement.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a statement of the store waits for another transaction, in the form in which the server
/// reports it. A call that needs longer repeats the statement or returns that the key is in flight,
/// and its connection is free for others meanwhile.
pub(super) const LOCK_TIMEOUT: &str = "100ms";
/// How long a statement of the store may take on the server: slightly less than its caller waits.
pub(super) const STATEMENT_TIMEOUT: &str = "9s";
