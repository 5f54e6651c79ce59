//! The errors of this server itself, in the dialect that the idempotency layer speaks here too: problem+json (RFC 9457) with the
//! `error` object and the `Stripe-Should-Retry` header that Stripe's client libraries look for.

use std::fmt;

use actix_web::{HttpResponse, ResponseError, http::StatusCode};
use idempotent_actix::Disposition;
use serde_json::{Value, json};
use sqlx::error::DatabaseError;

/// What went wrong, as the client is told.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    code: &'static str,
    message: String,
    details: Vec<(&'static str, Value)>,
    disposition: Disposition,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, code, message: message.into(), details: Vec::new(), disposition: Disposition::Final }
    }

    /// 400: the request cannot be understood.
    pub(crate) fn invalid(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", code, message)
    }

    /// 404: there is no such thing, or it is somebody else's.
    pub(crate) fn missing(what: &str, id: &str, param: &'static str) -> Self {
        let message = format!("No such {what}: '{id}'");
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", "resource_missing", message).about(param)
    }

    /// 404: the server has no such route.
    pub(crate) fn unknown_url(method: &str, path: &str) -> Self {
        let message = format!("Unrecognized request URL ({method}: {path}).");
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", "url_unknown", message)
    }

    /// 401: nobody is known by this API key.
    pub(crate) fn unauthorized(message: &'static str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "invalid_request_error", "api_key_invalid", message)
    }

    /// 413: more body than this server reads.
    pub(crate) fn too_large() -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", "body_too_large", "The body is too large.")
    }

    /// 402: the bank said no, and will say so again: the answer is final.
    pub(crate) fn card_declined(intent: Value) -> Self {
        let mut error =
            Self::new(StatusCode::PAYMENT_REQUIRED, "card_error", "card_declined", "Your card was declined.");
        error.details = vec![("decline_code", "generic_decline".into()), ("payment_intent", intent)];
        error
    }

    /// 402: there is not enough to move. The answer is final: when there is, that is a new transfer, with a new key.
    pub(crate) fn balance_insufficient(account: &str) -> Self {
        let message = format!("Account '{account}' does not have enough to transfer.");
        Self::new(StatusCode::PAYMENT_REQUIRED, "invalid_request_error", "balance_insufficient", message).about("from")
    }

    /// 409: the ledger has another payment under this key. A key gets here that is used again after its ttl, or with another
    /// payment after an answer that was not kept.
    pub(crate) fn key_spent() -> Self {
        let message = "This idempotency key belongs to an older request with other parameters.";
        Self::new(StatusCode::CONFLICT, "idempotency_error", "key_spent", message)
    }

    /// 503: the bank could not be reached, so nothing happened and the key is free again.
    pub(crate) fn processor_down() -> Self {
        let message = "The card processor is not available. Nothing was charged; try again.";
        let mut error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "api_error", "processor_unavailable", message);
        error.disposition = Disposition::Retryable;
        error
    }

    /// 503: the database ended this transaction in favour of another. Nothing happened, and the key is free again.
    fn gave_way() -> Self {
        let message = "Another request was in the way. Nothing was changed; try again.";
        let mut error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "api_error", "ledger_busy", message);
        error.disposition = Disposition::Retryable;
        error
    }

    /// Names the parameter at fault.
    pub(crate) fn about(mut self, param: &str) -> Self {
        self.details.push(("param", param.into()));
        self
    }

    /// Says that money may have moved: a key whose answer this is must not run again by itself.
    pub(crate) fn outcome_unknown(mut self) -> Self {
        self.disposition = Disposition::Unknown;
        self
    }

    fn body(&self) -> Value {
        let mut error = json!({ "type": self.kind, "code": self.code, "message": self.message });
        for (name, value) in &self.details {
            if let Some(object) = error.as_object_mut() {
                object.insert((*name).to_owned(), value.clone());
            }
        }
        json!({
            "type": "about:blank",
            "title": self.status.canonical_reason(),
            "status": self.status.as_u16(),
            "detail": self.message,
            "code": self.code,
            "retryable": self.retryable(),
            "error": error,
        })
    }

    fn retryable(&self) -> bool {
        matches!(self.disposition, Disposition::Retryable)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        self.status
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status)
            .content_type("application/problem+json")
            .insert_header(("Stripe-Should-Retry", self.retryable().to_string()))
            .body(self.body().to_string());
        // The status would decide the same for most of these; said here, it cannot be misread.
        response.extensions_mut().insert(self.disposition);
        response
    }
}

/// 500: the ledger failed. The cause is for the terminal, not for the client. The retry runs with the same derived key.
impl From<sqlx::Error> for ApiError {
    fn from(cause: sqlx::Error) -> Self {
        let code = cause.as_database_error().and_then(DatabaseError::code);
        // `serialization_failure` and `deadlock_detected` of Postgres: the same again may go well.
        if matches!(code.as_deref(), Some("40001" | "40P01")) {
            return Self::gave_way();
        }
        eprintln!("payments: the ledger failed: {cause}");
        let message = "The ledger is not available; try again.";
        let mut error = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "api_error", "ledger_unavailable", message);
        error.disposition = Disposition::Retryable;
        error
    }
}
