//! Problems in a form that Stripe's client libraries understand.

use serde_json::{Value, json};

use super::{Problem, ProblemKind};

impl Problem {
    /// Returns the status and the JSON object of the problem for Stripe's client libraries: the
    /// members of [`to_json`](Self::to_json), and `error`.
    ///
    /// A reused key has the status 400 instead of 422 if `is_stripe_client`: these libraries raise
    /// their idempotency error only for 400.
    #[must_use]
    pub fn to_stripe_json(&self, is_stripe_client: bool) -> (u16, Value) {
        let (error_type, code) = self.kind.stripe_error();
        let status = if self.status == 422 && is_stripe_client { 400 } else { self.status };
        let mut body = self.to_json();
        if let Value::Object(members) = &mut body {
            let message = format!("{}. {}", self.kind.title(), self.detail);
            let error = json!({
                "type": error_type,
                "code": code,
                "message": message,
                "doc_url": self.url,
            });
            members.insert("error".into(), error);
            members.insert("status".into(), status.into());
        }
        (status, body)
    }
}

impl ProblemKind {
    /// Stripe's error type and code for a kind of problem.
    pub(crate) fn stripe_error(self) -> (&'static str, &'static str) {
        match self {
            ProblemKind::KeyReused | ProblemKind::OutcomeUnknown | ProblemKind::KeyMalformed => {
                ("idempotency_error", self.code())
            }
            ProblemKind::InFlight => ("idempotency_error", "idempotency_key_in_use"),
            ProblemKind::KeyMissing
            | ProblemKind::KeyUnsupported
            | ProblemKind::KeyUnknown
            | ProblemKind::ScopeMissing
            | ProblemKind::MethodNotAllowed
            | ProblemKind::BodyTooLarge => ("invalid_request_error", self.code()),
            ProblemKind::HandlerFailed
            | ProblemKind::HandlerTimedOut
            | ProblemKind::Overloaded
            | ProblemKind::RecordUnreadable
            | ProblemKind::Misconfigured
            | ProblemKind::StoreUnavailable
            | ProblemKind::ShuttingDown => ("api_error", self.code()),
        }
    }
}
