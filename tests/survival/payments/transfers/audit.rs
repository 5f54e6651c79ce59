//! Compares the database of the transfers with the responses that the clients got.

use std::collections::BTreeSet;

use super::Load;
use crate::payments::server::Files;

/// What the database shows. All numbers but `held` must be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Audit {
    /// Transfers beyond the first of their key.
    pub(super) duplicates: i64,
    /// Transfers whose record is neither completed nor held.
    pub(super) without_record: i64,
    /// Responses that report a transfer which the database does not contain.
    pub(super) without_effect: usize,
    /// Transfers that no response reports, and whose key is not held.
    pub(super) unreported: usize,
    /// Accounts whose balance is not the sum of their transfers.
    pub(super) wrong_balances: i64,
    /// Transfers whose key is held, because their handler has committed its transaction itself.
    pub(super) held: i64,
    pub(super) in_flight: i64,
}

/// Every key must have a response, unless it is held.
pub(super) fn audit(files: &Files, load: &Load) -> Audit {
    let count = |number: &str| files.count_in_store(number);
    let with_state = |states: &str| {
        format!(
            "SELECT count(*) FROM transfers JOIN idempotency_records AS r ON r.id = record \
             WHERE r.state IN ({states})"
        )
    };
    let ids = |query: &str| files.query_store(query).into_iter().collect::<BTreeSet<_>>();
    let reported: BTreeSet<_> = load.transfers().into_iter().collect();
    let made = ids("SELECT id FROM transfers");
    let held = ids("SELECT t.id FROM transfers AS t JOIN idempotency_records AS r \
         ON r.id = record WHERE r.state = 3");
    Audit {
        duplicates: count("SELECT count(*) - count(DISTINCT record) FROM transfers"),
        without_record: count("SELECT count(*) FROM transfers") - count(&with_state("2, 3")),
        without_effect: reported.difference(&made).count(),
        unreported: made.iter().filter(|id| !reported.contains(*id) && !held.contains(*id)).count(),
        wrong_balances: count(
            "SELECT count(*) FROM accounts AS a WHERE balance <> 100000
                 + (SELECT coalesce(sum(amount), 0) FROM transfers WHERE to_account = a.id)
                 - (SELECT coalesce(sum(amount), 0) FROM transfers WHERE from_account = a.id)",
        ),
        held: count(&with_state("3")),
        in_flight: in_flight(files),
    }
}

pub(super) fn in_flight(files: &Files) -> i64 {
    files.count_in_store("SELECT count(*) FROM idempotency_records WHERE state = 1")
}
