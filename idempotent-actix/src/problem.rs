//! Error responses of the guard (RFC 9457).
//!
//! The guard reports each request that it refuses, or whose handler fails, as a [`Problem`]. The
//! function that the application has set with [`problems`](crate::IdempotencyBuilder::problems)
//! renders it: [`json()`] (the default), [`stripe`], or a function of the application.

use actix_web::http::{Method, StatusCode};
use idempotent_core::{ShortText, StoreError};
use serde_json::{Value, json};

mod kind;
pub(crate) mod render;

pub use self::{
    kind::ProblemKind,
    render::{json, stripe},
};
pub(crate) use self::{kind::kind_of, render::retry_after};

/// The problem with one request: the input of the function that renders it as a response.
#[derive(Clone, Debug)]
pub struct Problem {
    kind: ProblemKind,
    status: StatusCode,
    detail: String,
    retryable: bool,
    retry_after: Option<u32>,
    allow: &'static [Method],
    url: String,
    reference: Option<ShortText>,
}

/// Marks the response of a `TxError` or an `OperationError`, which the guard renders again with the
/// application's renderer.
#[derive(Clone, Copy)]
pub(crate) struct HandlerProblem {
    pub(crate) kind: ProblemKind,
    /// Whether a later request may succeed.
    pub(crate) retryable: bool,
}

impl HandlerProblem {
    pub(crate) fn new(kind: ProblemKind) -> Self {
        Self { kind, retryable: kind.retryable() }
    }

    /// The problem of a handler whose call to the store failed. `misconfigured` would report that
    /// the handler did not run.
    pub(crate) fn of_store(error: &StoreError) -> Self {
        let kind = kind_of(error);
        if kind == ProblemKind::Misconfigured {
            return Self { kind: ProblemKind::HandlerFailed, retryable: false };
        }
        Self::new(kind)
    }
}

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
            reference: None,
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

    pub(crate) fn with_reference(mut self, reference: Option<ShortText>) -> Self {
        self.reference = reference;
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

    /// Returns the kind of problem, which determines its code and its title.
    #[must_use]
    pub fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// Returns the status for the response. It can differ from the [usual
    /// status](ProblemKind::status) of the kind.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns what is wrong with this request and what to do, as text for the developer of the
    /// client.
    ///
    /// The text contains neither the key nor the cause of an internal error.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns whether the client may send the same request again with the same key.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// Returns the value for the `Retry-After` header in seconds, or `None` if the response should
    /// not have that header.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.retry_after
    }

    /// Returns the methods for the `Allow` header.
    ///
    /// The list is empty unless the kind is [`MethodNotAllowed`](ProblemKind::MethodNotAllowed).
    /// The response of that kind must have the header (RFC 9110 §15.5.6).
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

    /// Returns the reference that the earlier attempt has set, if the kind is
    /// [`InFlight`](ProblemKind::InFlight) or [`OutcomeUnknown`](ProblemKind::OutcomeUnknown).
    #[must_use]
    pub fn reference(&self) -> Option<&str> {
        self.reference.as_deref()
    }

    /// Returns the problem as a JSON object: the members `type`, `title`, `status` and `detail` of
    /// RFC 9457, and the extension members `code`, `retryable`, and `reference` if there is one.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut body = json!({
            "type": self.url,
            "title": self.kind.title(),
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.kind.code(),
            "retryable": self.retryable,
        });
        if let (Some(reference), Value::Object(members)) = (self.reference(), &mut body) {
            members.insert("reference".into(), reference.into());
        }
        body
    }
}
