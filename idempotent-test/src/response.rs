//! A response of the application under test.

use actix_web::{
    HttpResponse,
    http::{StatusCode, header::HeaderMap},
};
use bytes::Bytes;
use idempotent_actix::{RecordId, RequestOutcome};

/// A whole response.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TestResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body. `None` if it failed while it was read.
    pub body: Option<Bytes>,
    /// The outcome of the request. `None` if its handler has no `#[idempotent]`, or if the request
    /// was refused before its guard.
    pub outcome: Option<RequestOutcome>,
    /// The id of its record, if it had a valid key.
    pub record: Option<RecordId>,
}

impl TestResponse {
    pub(crate) fn new(head: &HttpResponse<()>, body: Option<Bytes>) -> Self {
        Self {
            status: head.status(),
            headers: head.headers().clone(),
            body,
            outcome: head.extensions().get().copied(),
            record: head.extensions().get().copied(),
        }
    }

    /// Returns the body as a text, or an empty text if it is none.
    #[must_use]
    pub fn text(&self) -> &str {
        self.body.as_deref().and_then(|body| std::str::from_utf8(body).ok()).unwrap_or_default()
    }

    /// The first part in which two responses differ for a client: status, body, or a header, except
    /// for those that a replay may have instead.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        if self.status != other.status {
            return Some(format!("status {} instead of {}", other.status, self.status));
        }
        let names = self.headers.keys().chain(other.headers.keys());
        for name in names.filter(|name| !OF_A_REPLAY.contains(&name.as_str())) {
            let values = |of: &Self| of.headers.get_all(name).cloned().collect::<Vec<_>>();
            let (first, second) = (values(self), values(other));
            if first != second {
                return Some(format!("header `{name}` {second:?} instead of {first:?}"));
            }
        }
        (self.body != other.body).then(|| "another body".into())
    }
}

/// The headers in which a replay may differ.
const OF_A_REPLAY: [&str; 4] =
    ["cache-control", "date", "idempotency-replayed", "idempotency-replay"];
