//! Results of the tool, and problems of the guard as such results.
//!
//! A model reads them. They say whether money was moved, and what to do next.

use actix_web::{HttpRequest, HttpResponse, http::header};
use idempotent_actix::problem::{self, Problem, ProblemKind};
use serde_json::json;

/// The result of a tool that has done its work.
pub(crate) fn tool_result(text: &str) -> HttpResponse {
    result(text, false)
}

/// The result of a tool that has failed. The status is that of a result: a client shows the model
/// the text, and not the fact that HTTP has failed.
pub(crate) fn tool_error(text: &str) -> HttpResponse {
    result(text, true)
}

fn result(text: &str, is_error: bool) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(json!({ "content": [{ "type": "text", "text": text }], "isError": is_error }))
}

/// Renders a problem as the result of the tool. A caller who is not authenticated gets the status
/// by which clients begin to authenticate.
pub(crate) fn render(problem: &Problem, request: &HttpRequest) -> HttpResponse {
    if problem.kind() == ProblemKind::ScopeMissing {
        return problem::json(problem, request);
    }
    tool_error(&text(problem))
}

/// What the model should know if it is unknown whether the money was moved.
pub(crate) fn outcome_unknown(reference: Option<&str>) -> String {
    let reference = reference.map(|memo| format!(" Reference: {memo}.")).unwrap_or_default();
    format!(
        "It is not known whether this refund was made. Do not call this tool for it again, \
         neither with this call_id nor with a new one: the customer might get the money twice. \
         Ask a person to look for the refund in the books of the bank.{reference}"
    )
}

fn text(problem: &Problem) -> String {
    match problem.kind() {
        ProblemKind::InFlight => format!(
            "This refund is still in progress. Call the tool again in {} s with exactly the same \
             arguments, also the same call_id, to get its result.",
            problem.retry_after_seconds().unwrap_or(1)
        ),
        _ if problem.is_retryable() => "The tool failed. Call it again in a few seconds with \
             exactly the same arguments, also the same call_id: the money is sent once."
            .into(),
        ProblemKind::KeyReused => "This call moved no money: an earlier call with this call_id \
             had other arguments. To get the result of the earlier call, repeat its arguments. \
             Only if this is a different refund, call the tool with a new call_id."
            .into(),
        ProblemKind::KeyMissing | ProblemKind::KeyMalformed => {
            "No money was moved. The argument call_id must be a text of 1 to 255 printable \
             characters of ASCII, such as a UUID."
                .into()
        }
        ProblemKind::KeyUnsupported
        | ProblemKind::ScopeMissing
        | ProblemKind::KeyUnknown
        | ProblemKind::MethodNotAllowed
        | ProblemKind::BodyTooLarge
        | ProblemKind::Misconfigured
        | ProblemKind::Overloaded
        | ProblemKind::ShuttingDown => {
            format!("The call was refused, and no money was moved: {}.", problem.kind().title())
        }
        // These have run, or may have; so may a kind that this example does not know.
        ProblemKind::OutcomeUnknown
        | ProblemKind::RecordUnreadable
        | ProblemKind::HandlerFailed
        | ProblemKind::HandlerTimedOut
        | ProblemKind::StoreUnavailable
        | _ => outcome_unknown(problem.reference()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_told_to_repeat_only_what_is_safe_and_never_with_a_new_id() {
        for kind in ProblemKind::ALL {
            for problem in [
                Problem::new(kind, kind.advice(), "/"),
                Problem::new(kind, kind.advice(), "/").not_retryable(),
            ] {
                let text = text(&problem);
                let repeats = text.contains("exactly the same arguments, also the same call_id");
                let in_flight = kind == ProblemKind::InFlight;
                assert_eq!(repeats, problem.is_retryable() || in_flight, "{kind:?}: {text}");
                let new_id = text.contains("a new call_id");
                assert_eq!(new_id, kind == ProblemKind::KeyReused, "{kind:?}: {text}");
            }
        }
    }

    #[test]
    fn what_may_have_run_is_not_said_to_have_moved_no_money() {
        for kind in [
            ProblemKind::OutcomeUnknown,
            ProblemKind::RecordUnreadable,
            ProblemKind::HandlerFailed,
            ProblemKind::HandlerTimedOut,
            ProblemKind::StoreUnavailable,
        ] {
            let text = text(&Problem::new(kind, kind.advice(), "/").not_retryable());
            assert!(text.starts_with("It is not known"), "{kind:?}: {text}");
        }
    }
}
