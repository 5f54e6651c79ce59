//! Time limits of the statements of the store.

use std::time::Duration;

/// How long a call waits for the server's response to one statement.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for a batch: its steps are then executed alone, and have most of their callers' time
/// left.
pub(crate) const BATCH_RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a handler's statement may continue after the handler was dropped.
pub(crate) const STATEMENT_GRACE: Duration = Duration::from_secs(1);
/// How many seconds a statement may take on a MariaDB server: slightly less than its caller waits.
pub(crate) const STATEMENT_SECONDS: u32 = 9;
/// The same for renewals, whose connection must be free for the next one, and for batches.
pub(crate) const SHORT_STATEMENT_SECONDS: u32 = 2;
