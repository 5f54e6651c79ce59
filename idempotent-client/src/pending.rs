//! Operations whose outcome is not known yet, kept so that they survive the client.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use idempotent_http::Key;
use reqwest::{Request, Url};

use crate::{clock, error::BoxError};

#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "sqlite")]
pub use self::sqlite::SqlitePending;

/// An operation, as it is stored before its first attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingOperation {
    /// Its key.
    pub key: Key,
    /// The application's name for it, if it has one.
    pub label: Option<String>,
    /// Its request.
    pub request: StoredRequest,
    /// Whether the request had credentials, which are not stored.
    pub has_credentials: bool,
    /// When its key was used first.
    pub started_at: SystemTime,
    /// When the server may have forgotten its key.
    pub expires_at: SystemTime,
    /// What is known of its outcome.
    pub state: PendingState,
}

/// What is known of the outcome of a stored operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingState {
    /// Nothing: it is sent again by [`resume`](crate::ClientIdempotency::resume).
    Open,
    /// It was not done. Only an operation with a label is kept then, so that the label keeps its
    /// key.
    NotDone,
    /// The outcome has been returned. Only an operation with a label is kept then.
    Finished,
}

/// A request without its credentials.
///
/// The headers `Authorization`, `Proxy-Authorization`, `Cookie`, `X-Api-Key` and `X-Auth-Token`,
/// and all that are marked as [sensitive](HeaderValue::is_sensitive), are not stored. Credentials
/// in other headers, in the URL or in the body are.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredRequest {
    /// The method.
    pub method: Method,
    /// The URL.
    pub url: Url,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// Where pending operations are kept.
///
/// An application can implement it with its own database. `SqlitePending` (feature `sqlite`) is a
/// file. Several clients and processes can use a store at the same time, so each method is one
/// atomic step.
///
/// A store counts the calls of each operation, so that a call reports an operation as not done only
/// if no other call can have done it.
#[async_trait]
pub trait PendingStore: Send + Sync + 'static {
    /// Stores an operation durably as open, with one call.
    ///
    /// If there is one with the same label, or else with the same key, it is returned, and the new
    /// one is not stored. Its key never changes:
    ///
    /// * An operation that was not done becomes open again, with one call, and gets everything from
    ///   the new one but its key. It is returned so, except that its state is still
    ///   [`NotDone`](PendingState::NotDone).
    /// * Of any other operation, the calls are counted up. If it has no label yet, it gets that of
    ///   the new one, and is returned without it.
    ///
    /// A finished operation, and one that was not done, must be kept for as long as the label may
    /// come again, at least until it `expires_at`.
    ///
    /// # Errors
    /// If it fails, the request is not sent, and the operation must not be stored.
    async fn begin(&self, new: &PendingOperation) -> Result<Option<PendingOperation>, BoxError>;

    /// Notes that the outcome is known: removes the operation, or, if it has a label, marks it as
    /// finished.
    ///
    /// # Errors
    /// If it fails, the operation stays pending; when it is resumed, the server replays its
    /// response.
    async fn finish(&self, key: &Key) -> Result<(), BoxError>;

    /// Notes that the operation was not done, if it is open and the caller's is its only call:
    /// removes it, or, if it has a label, marks it as not done, without calls. Returns whether it
    /// was noted.
    ///
    /// # Errors
    /// If it fails, the operation may stay pending, and is not reported as not done.
    async fn retract(&self, key: &Key) -> Result<bool, BoxError>;

    /// Returns the open operations, in the order in which they were stored, and counts a call of
    /// each.
    ///
    /// # Errors
    /// If it fails, nothing is resumed.
    async fn pending(&self) -> Result<Vec<PendingOperation>, BoxError>;

    /// Removes an operation, whatever its state.
    ///
    /// # Errors
    /// If it fails, the operation may still be there.
    async fn forget(&self, key: &Key) -> Result<(), BoxError>;
}

impl PendingOperation {
    pub(crate) fn new(
        key: Key,
        begun_at: Option<SystemTime>,
        ttl: Duration,
        request: StoredRequest,
    ) -> Self {
        const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
        let started_at = begun_at.unwrap_or_else(clock::now);
        let expires_at = started_at.checked_add(ttl.min(CENTURY)).unwrap_or(started_at);
        let (label, has_credentials, state) = (None, false, PendingState::Open);
        Self { key, label, request, has_credentials, started_at, expires_at, state }
    }
}

impl StoredRequest {
    /// The request, if its body is not a stream.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        let body = match request.body() {
            None => Bytes::new(),
            Some(body) => Bytes::copy_from_slice(body.as_bytes()?),
        };
        let mut headers = HeaderMap::new();
        for (name, value) in request.headers() {
            if !is_secret(name, value) {
                headers.append(name.clone(), value.clone());
            }
        }
        let (method, url) = (request.method().clone(), request.url().clone());
        Some(Self { method, url, headers, body })
    }

    /// Whether a request has headers that are not stored.
    pub(crate) fn has_credentials(request: &Request) -> bool {
        request.headers().iter().any(|(name, value)| is_secret(name, value))
    }

    pub(crate) fn to_request(&self) -> Request {
        let mut request = Request::new(self.method.clone(), self.url.clone());
        request.headers_mut().clone_from(&self.headers);
        if !self.body.is_empty() {
            *request.body_mut() = Some(self.body.clone().into());
        }
        request
    }

    /// Whether both have the same method, URL, content type and body.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let content_type = |request: &Self| request.headers.get(header::CONTENT_TYPE).cloned();
        self.method == other.method
            && self.url == other.url
            && self.body == other.body
            && content_type(self) == content_type(other)
    }
}

fn is_secret(name: &HeaderName, value: &HeaderValue) -> bool {
    const SECRETS: [&str; 5] =
        ["authorization", "proxy-authorization", "cookie", "x-api-key", "x-auth-token"];
    value.is_sensitive() || SECRETS.contains(&name.as_str())
}

/// Shows neither headers nor the body.
impl std::fmt::Debug for StoredRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { method, url, body, .. } = self;
        let (url, length) = (url.path(), body.len());
        f.debug_struct("StoredRequest")
            .field("method", method)
            .field("path", &url)
            .field("body_bytes", &length)
            .finish_non_exhaustive()
    }
}
