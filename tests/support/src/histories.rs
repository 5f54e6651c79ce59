//! What random histories of a store must contain.

use std::collections::BTreeMap;

use idempotent_core::{
    protocol::{ClaimOutcome, Fence, Rejection, ResolveOutcome},
    transition::EventOutcome,
};

/// How often each kind of outcome occurred.
fn tally(outcomes: &[EventOutcome]) -> BTreeMap<&'static str, usize> {
    let mut tally = BTreeMap::new();
    for outcome in outcomes {
        let kind = match outcome {
            EventOutcome::Claim(ClaimOutcome::Granted { attempt: 1 }) => "granted",
            EventOutcome::Claim(ClaimOutcome::Granted { .. }) => "taken over",
            EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Completed(_))) => "replayed",
            EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::InFlight { .. })) => "in flight",
            EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Held { .. })) => "held",
            EventOutcome::Claim(ClaimOutcome::Rejected(Rejection::Mismatch { .. })) => "mismatch",
            EventOutcome::Fence(Fence::Passed) => "passed",
            EventOutcome::Fence(Fence::Fenced) => "fenced",
            EventOutcome::Resolve(ResolveOutcome::Resolved) => "resolved",
            EventOutcome::Resolve(ResolveOutcome::Conflict) => "conflict",
            EventOutcome::Changed(true) => "changed",
            EventOutcome::Changed(false) => "not changed",
            EventOutcome::Appended => "appended",
            EventOutcome::Purge(true) => "purged",
            EventOutcome::Purge(false) => "not purged",
        };
        *tally.entry(kind).or_default() += 1;
    }
    tally
}

/// Asserts that each kind of outcome occurred at least this often.
///
/// # Panics
/// When a kind occurred less often.
pub fn assert_not_vacuous(outcomes: &[EventOutcome], at_least: usize) {
    let tally = tally(outcomes);
    // A store without administration skips the decisions of operators.
    let kinds = if tally.contains_key("appended") { 15 } else { 12 };
    assert_eq!(tally.len(), kinds, "a kind of outcome never occurred: {tally:?}");
    assert!(tally.values().all(|count| *count >= at_least), "{tally:?}");
}
