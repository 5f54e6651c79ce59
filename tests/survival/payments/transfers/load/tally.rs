//! The counts of a load.

use std::fmt;

/// Counts of requests and responses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    /// Requests whose connection ended without a response.
    pub(crate) lost: u64,
    /// Responses that came from a run.
    pub(crate) ran: u64,
    /// Keys whose first received response was a replay: the response of the run was lost, or came
    /// later.
    pub(crate) first_seen_as_replay: u64,
    pub(crate) replays: u64,
    pub(crate) in_flight: u64,
    pub(crate) unavailable: u64,
    /// Responses 500 of a server whose handlers misuse their transaction.
    pub(crate) failed: u64,
    /// Keys that are held, because their handler has committed its transaction itself.
    pub(crate) held: u64,
    /// Violations of a guarantee.
    pub(super) faults: Vec<String>,
}

impl Tally {
    /// Requests with a final response.
    pub(crate) fn completed(&self) -> u64 {
        self.ran + self.replays + self.held
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, lost, ran, first_seen_as_replay, replays, in_flight, .. } = self;
        let Self { unavailable, failed, held, .. } = self;
        write!(
            f,
            "{sent} sent, {lost} lost in progress, {ran} ran, {replays} replays, \
             {first_seen_as_replay} first seen as a replay, {in_flight} in flight, \
             {unavailable} unavailable, {failed} failed, {held} held"
        )
    }
}
