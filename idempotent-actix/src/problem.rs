//! Error responses of the guard (RFC 9457).
//!
//! The guard reports each refused request as a [`Problem`]. A function that the application
//! chooses renders it: [`json()`] (the default), [`stripe`], or one of the application's own.

use actix_web::http::{Method, StatusCode};
use serde_json::{Value, json};

mod kind;
pub(crate) mod render;

pub use self::{
    kind::ProblemKind,
    render::{json, stripe},
};
pub(crate) use self::{kind::kind_of, render::retry_after};

/// One refused request, as the function that renders it gets it.
#[derive(Clone, Debug)]
pub struct Problem {
    kind: ProblemKind,
    status: StatusCode,
    detail: String,
    retryable: bool,
    retry_after: Option<u32>,
    allow: &'static [Method],
    url: String,
}

/// Marks the response of a `TxError`, which the guard renders again as the
/// application does.
#[derive(Clone, Copy)]
pub(crate) struct TxProblem(pub(crate) ProblemKind);

impl Problem {
    pub(crate) fn new(kind: ProblemKind, detail: impl Into<String>, documentation: &str) -> Self {
        let url = format!("{documentation}{}", kind.code());
        Self {
            kind,
            status: kind.status(),
            detail: detail.into(),
            retryable: kind.retryable(),
            retry_after: None,
            allow: &[],
            url,
        }
    }

    pub(crate) fn with_retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub(crate) fn with_allow(mut self, methods: &'static [Method]) -> Self {
        self.allow = methods;
        self
    }

    pub(crate) fn not_retryable(mut self) -> Self {
        self.retryable = false;
        self
    }

    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Returns the kind of problem, which has its code and its title.
    #[must_use]
    pub fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// Returns the status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns what is wrong with this request and what to do, for the client's developer.
    ///
    /// It contains neither the key nor the cause of an internal error.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns whether the same request may be sent again with the same key.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// Returns the value of `Retry-After` in seconds, if the response should have one.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.retry_after
    }

    /// Returns the methods for the `Allow` header.
    ///
    /// It is empty unless the kind is [`MethodNotAllowed`](ProblemKind::MethodNotAllowed), whose
    /// response must have the header (RFC 9110 §15.5.6).
    #[must_use]
    pub fn allow(&self) -> &'static [Method] {
        self.allow
    }

    /// Returns the URL of the problem's documentation: the base that was set with
    /// [`documentation`](crate::IdempotencyBuilder::documentation), followed by the code.
    #[must_use]
    pub fn documentation(&self) -> &str {
        &self.url
    }

    /// Returns the members of RFC 9457, with `code` and `retryable`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "type": self.url,
            "title": self.kind.title(),
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.kind.code(),
            "retryable": self.retryable,
        })
    }
}
