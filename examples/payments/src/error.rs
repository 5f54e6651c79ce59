//! The errors of this server, in the same format as those of `idempotent-actix`: problem+json (RFC
//! 9457) with the `error` object and the `Stripe-Should-Retry` header that Stripe's client
//! libraries read.

use std::fmt;

use actix_web::{HttpResponse, ResponseError, http::StatusCode};
use idempotent_actix::{Disposition, TxError};
use serde_json::{Value, json};
use sqlx::error::DatabaseError;

/// An error response.
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
    fn new(
        status: StatusCode,
        kind: &'static str,
        code: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status,
            kind,
            code,
            message: message.into(),
            details: Vec::new(),
            disposition: Disposition::Final,
        }
    }

    /// 400: a parameter is invalid.
    pub(crate) fn invalid(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", code, message)
    }

    /// 404: the object does not exist, or belongs to another user.
    pub(crate) fn missing(what: &str, id: &str, param: &'static str) -> Self {
        let message = format!("No such {what}: '{id}'");
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", "resource_missing", message)
            .with_param(param)
    }

    /// 404: the server has no such route.
    pub(crate) fn unknown_url(method: &str, path: &str) -> Self {
        let message = format!("Unrecognized request URL ({method}: {path}).");
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", "url_unknown", message)
    }

    /// 401: the API key is missing or invalid.
    pub(crate) fn unauthorized(message: &'static str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "invalid_request_error", "api_key_invalid", message)
    }

    /// 413: the body exceeds the limit.
    pub(crate) fn too_large() -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "invalid_request_error",
            "body_too_large",
            "The body is too large.",
        )
    }

    /// 402: the bank declined the card. Final, because the bank would also decline a retry.
    pub(crate) fn card_declined(intent: Value) -> Self {
        let mut error = Self::new(
            StatusCode::PAYMENT_REQUIRED,
            "card_error",
            "card_declined",
            "Your card was declined.",
        );
        error.details =
            vec![("decline_code", "generic_decline".into()), ("payment_intent", intent)];
        error
    }

    /// 402: the balance is insufficient. Final, because a transfer after a deposit is a new
    /// operation with a new key.
    pub(crate) fn balance_insufficient(account: &str) -> Self {
        let message = format!("Account '{account}' does not have enough to transfer.");
        Self::new(
            StatusCode::PAYMENT_REQUIRED,
            "invalid_request_error",
            "balance_insufficient",
            message,
        )
        .with_param("from")
    }

    /// 409: the ledger has another payment with this key: the key was reused after its ttl, or
    /// after a response that was not recorded.
    pub(crate) fn key_spent() -> Self {
        let message = "This idempotency key belongs to an older request with other parameters.";
        Self::new(StatusCode::CONFLICT, "idempotency_error", "key_spent", message)
    }

    /// 503: the bank's card processor could not be reached. Nothing happened, and the retry asks
    /// the bank again.
    pub(crate) fn processor_down() -> Self {
        let message = "The card processor is not available. Nothing was charged; try again.";
        let mut error = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "api_error",
            "processor_unavailable",
            message,
        );
        error.disposition = Disposition::Retryable;
        error
    }

    /// 503: the bank did not respond, or not as expected, so the outcome is unknown. The retry asks
    /// the bank for it first. The cause is logged, but not sent.
    pub(crate) fn bank_failed(cause: impl fmt::Display) -> Self {
        eprintln!("payments: the bank failed: {cause}");
        let message = "The bank did not respond; try again with the same idempotency key.";
        let mut error =
            Self::new(StatusCode::SERVICE_UNAVAILABLE, "api_error", "bank_unavailable", message);
        error.disposition = Disposition::Retryable;
        error
    }

    /// 503: the database aborted this transaction in favor of another. Nothing happened, and the
    /// key is released.
    fn ledger_busy() -> Self {
        let message = "Another request changed the same data. Nothing was changed; try again.";
        let mut error =
            Self::new(StatusCode::SERVICE_UNAVAILABLE, "api_error", "ledger_busy", message);
        error.disposition = Disposition::Retryable;
        error
    }

    /// Names the invalid parameter.
    pub(crate) fn with_param(mut self, param: &str) -> Self {
        self.details.push(("param", param.into()));
        self
    }

    /// Marks the outcome as unknown, because money may have moved: the key is held.
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
        // Explicit, although for most errors the status alone would have the same effect.
        response.extensions_mut().insert(self.disposition);
        response
    }
}

/// 500: the ledger failed. The cause is logged, but not sent. The retry runs with the same derived
/// key.
impl From<sqlx::Error> for ApiError {
    fn from(cause: sqlx::Error) -> Self {
        let code = cause.as_database_error().and_then(DatabaseError::code);
        // `serialization_failure` and `deadlock_detected` of Postgres: a retry may succeed.
        if matches!(code.as_deref(), Some("40001" | "40P01")) {
            return Self::ledger_busy();
        }
        eprintln!("payments: the ledger failed: {cause}");
        let message = "The ledger is not available; try again.";
        let mut error = Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "api_error",
            "ledger_unavailable",
            message,
        );
        error.disposition = Disposition::Retryable;
        error
    }
}

/// 500: the transaction of a transfer could not be begun. The retry runs with the same derived key.
impl From<TxError> for ApiError {
    fn from(cause: TxError) -> Self {
        eprintln!("payments: the ledger failed: {cause}");
        let message = "The ledger is not available; try again.";
        let mut error = Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "api_error",
            "ledger_unavailable",
            message,
        );
        error.disposition = Disposition::Retryable;
        error
    }
}
