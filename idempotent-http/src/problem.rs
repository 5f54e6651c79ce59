//! Problems (RFC 9457): what a server reports of a request that it refuses, or whose handler fails.

use std::{borrow::Cow, time::Duration};

use idempotent_core::ShortText;
use serde_json::{Value, json};

mod kind;
mod stripe;

pub use self::kind::ProblemKind;

/// The media type of a problem as JSON.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// The problem with one request: the input of the function that renders it as a response.
#[derive(Clone, Debug)]
pub struct Problem {
    kind: ProblemKind,
    status: u16,
    detail: String,
    retryable: bool,
    retry_after: Option<u32>,
    allow: Option<String>,
    url: String,
    reference: Option<ShortText>,
}

impl Problem {
    /// Creates the problem of a kind. `documentation` is the base of the URLs of problems, such as
    /// `/idempotency#`; the code is appended to it.
    #[must_use]
    pub fn new(kind: ProblemKind, detail: impl Into<String>, documentation: &str) -> Self {
        let url = format!("{documentation}{}", kind.code());
        Self {
            kind,
            status: kind.status(),
            detail: detail.into(),
            retryable: kind.retryable(),
            retry_after: None,
            allow: None,
            url,
            reference: None,
        }
    }

    /// Sets the value of `Retry-After` in seconds.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Sets the value of `Allow`, such as `POST, PUT`.
    #[must_use]
    pub fn with_allow(mut self, methods: String) -> Self {
        self.allow = Some(methods);
        self
    }

    /// Sets the reference that the earlier attempt has set.
    #[must_use]
    pub fn with_reference(mut self, reference: Option<ShortText>) -> Self {
        self.reference = reference;
        self
    }

    /// Marks the problem of a request that must not be sent again.
    #[must_use]
    pub fn not_retryable(mut self) -> Self {
        self.retryable = false;
        self
    }

    /// Sets a status that differs from the usual one.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
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
    pub fn status(&self) -> u16 {
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

    /// Returns the value for the `Allow` header, such as `POST, PUT`.
    ///
    /// Only the kind [`MethodNotAllowed`](ProblemKind::MethodNotAllowed) has one. The response of
    /// that kind must have the header (RFC 9110 §15.5.6).
    #[must_use]
    pub fn allow(&self) -> Option<&str> {
        self.allow.as_deref()
    }

    /// Returns the URL of the problem's documentation: the base that the
    /// application has set, followed by the code.
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
            "status": self.status,
            "detail": self.detail,
            "code": self.kind.code(),
            "retryable": self.retryable,
        });
        if let (Some(reference), Value::Object(members)) = (self.reference(), &mut body) {
            members.insert("reference".into(), reference.into());
        }
        body
    }

    /// Returns the header lines that apply to the problem, whatever the body of its response is:
    /// `Cache-Control: no-store` and a `Link` to the documentation, and `Retry-After`, `Allow` and
    /// `WWW-Authenticate` if they apply. The names are in lower case.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, Cow<'_, str>)> {
        let link = format!("<{}>; rel=\"describedby\"", self.url);
        let missing = self.kind == ProblemKind::ScopeMissing;
        let optional = [
            ("retry-after", self.retry_after.map(|seconds| seconds.to_string().into())),
            ("allow", self.allow().map(Cow::from)),
            ("www-authenticate", missing.then_some("Bearer".into())),
        ];
        let optional = optional.into_iter().filter_map(|(name, value)| Some((name, value?)));
        [("cache-control", "no-store".into()), ("link", link.into())].into_iter().chain(optional)
    }
}

/// Draws a value for `Retry-After`, in seconds, where a lease expires in `lease_left`.
///
/// The value is random, from 1 second to about a quarter of that time, and at most 30 seconds. An
/// attempt usually ends long before its lease would expire. The jitter prevents clients that were
/// refused together from all retrying at the same moment.
#[must_use]
pub fn retry_after(lease_left: Duration) -> u32 {
    let jitter = u32::try_from(lease_left.as_secs() / 4).unwrap_or(u32::MAX).clamp(1, 29);
    1 + fastrand::u32(0..=jitter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_grows_with_the_lease_and_is_spread() {
        for (lease, most) in [(0, 2), (5, 2), (30, 8), (3600, 30)] {
            let seen: std::collections::HashSet<_> =
                (0..500).map(|_| retry_after(Duration::from_secs(lease))).collect();
            assert_eq!(seen.iter().min(), Some(&1), "{lease}");
            assert_eq!(seen.iter().max(), Some(&most), "{lease}");
        }
    }
}
