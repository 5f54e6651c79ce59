//! The problems that an operation can respond with: from its policy, and from the server's limits.

use super::{ProblemCase, Server};
use crate::{problem::ProblemKind, specification::PublishedOperation};

/// The cases of problems that the operation can respond with, in the order of their statuses.
pub(super) fn of(handler: &PublishedOperation, server: &Server<'_>) -> Vec<ProblemCase> {
    let cases = ProblemKind::ALL.into_iter().flat_map(|kind| {
        kind.statuses().into_iter().map(move |(status, _, retryable)| ProblemCase {
            kind,
            status,
            retryable,
            retry_after: says_when(kind) && retryable,
        })
    });
    cases.filter(|case| can_occur(*case, handler, server)).collect()
}

fn can_occur(case: ProblemCase, handler: &PublishedOperation, server: &Server<'_>) -> bool {
    let is_leased = handler.claim != "transaction";
    let abandoned = handler.abandoned.as_deref().unwrap_or("retry");
    // One case is that of a key that is held, the other one that of a key that is not.
    let may_end_so = if case.retryable { abandoned != "hold" } else { abandoned != "retry" };
    let has_principals = handler.scope.as_deref() != Some("global");
    match case.kind {
        ProblemKind::KeyMissing => handler.key == "required",
        ProblemKind::ScopeMissing => has_principals,
        // With polling, 409 is only what a server without a lookup responds.
        ProblemKind::InFlight => handler.in_flight != "poll" || server.lookups.is_empty(),
        // A claim in a transaction is rolled back, and no key is ever held.
        ProblemKind::OutcomeUnknown => is_leased,
        ProblemKind::HandlerFailed => may_end_so,
        ProblemKind::HandlerTimedOut => handler.timeout_seconds.is_some() && may_end_so,
        // The handler may not have run yet, so this does not depend on `abandoned`.
        ProblemKind::StoreUnavailable => case.retryable || may_end_so,
        ProblemKind::Overloaded => case.status != 429 || has_principals,
        ProblemKind::KeyMalformed
        | ProblemKind::BodyTooLarge
        | ProblemKind::KeyReused
        | ProblemKind::RecordUnreadable
        | ProblemKind::Misconfigured
        | ProblemKind::ShuttingDown => true,
        // These are of other resources, other methods, and handlers without a guard.
        ProblemKind::KeyUnknown | ProblemKind::KeyUnsupported | ProblemKind::MethodNotAllowed => {
            false
        }
    }
}

/// Whether responses of this kind say when to retry.
fn says_when(kind: ProblemKind) -> bool {
    matches!(
        kind,
        ProblemKind::InFlight
            | ProblemKind::HandlerTimedOut
            | ProblemKind::Overloaded
            | ProblemKind::StoreUnavailable
            | ProblemKind::ShuttingDown
    )
}

/// Whether responses of this kind can prove that the request was not run.
pub(super) fn may_prove_not_run(kind: ProblemKind) -> bool {
    matches!(
        kind,
        ProblemKind::Misconfigured
            | ProblemKind::Overloaded
            | ProblemKind::StoreUnavailable
            | ProblemKind::ShuttingDown
    )
}
