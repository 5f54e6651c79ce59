//! The outcome of an attempt.

use crate::runtime::verdict::Verdict;

/// The outcome of ending an attempt, which decides what its client gets.
///
/// Exhaustive: a caller must handle every outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The store has stored the end. Send the attempt's response.
    Stored,
    /// The store failed to store the end. Send the attempt's response nevertheless: its completion
    /// is retried in the background for as long as its record would last, within the limit of
    /// [`RuntimeOptions::deferred_bytes`](crate::runtime::RuntimeOptions::deferred_bytes).
    Deferred,
    /// Another attempt has taken over the key, or the store has lost its record. The attempt's
    /// response must not reach its client, which gets the response for this verdict instead. The
    /// verdict is never [`Mismatch`](crate::protocol::Rejection::Mismatch): the handler ran.
    Fenced(Verdict),
    /// The attempt's transaction was not committed, or its outcome is unknown. The attempt's
    /// response must not reach its client. The client can repeat the request to get the outcome.
    NotCommitted {
        /// Whether a repeated request may succeed.
        transient: bool,
    },
    /// The attempt's transaction was not committed, or its handler has ended it, and the key is
    /// held: a repeated request does not run. The attempt's response must not reach its client.
    Held,
}
