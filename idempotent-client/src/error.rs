//! Errors of operations.

use http::StatusCode;
use idempotent_http::Key;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An operation that ended without a definitive response. [`outcome`](Self::outcome) says whether
/// it may have been done.
#[derive(Debug, thiserror::Error)]
#[error("{kind}{}; {outcome}", attempts_text(*.attempts, *.last_status))]
pub struct Error {
    pub(crate) kind: ErrorKind,
    pub(crate) outcome: Outcome,
    pub(crate) key: Option<Key>,
    pub(crate) attempts: u32,
    pub(crate) last_status: Option<StatusCode>,
    pub(crate) reference: Option<String>,
    pub(crate) source: Option<BoxError>,
}

/// Why an operation ended without a definitive response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The total deadline has passed, or would pass before the server is ready for the next
    /// attempt.
    #[error("the operation did not finish before its deadline")]
    Deadline,
    /// Two attempts got a response that is perhaps not the operation's: a redirect, or after an
    /// earlier attempt that may have been run, perhaps by another call with the same key, any
    /// response that is neither a success nor marked as recorded. A gateway or a login page says
    /// nothing about the operation.
    #[error("the server refused the request, perhaps in front of the operation")]
    Refused,
    /// The server is misconfigured and has proved that it did not run this attempt. It runs none
    /// before it is mended.
    #[error("the server is misconfigured")]
    Misconfigured,
    /// The server does not know the outcome itself: it holds the key until someone resolves it, or
    /// has failed in a way that must not be retried, and has not proved that nothing was run.
    #[error("the server does not know the outcome of the operation")]
    Held,
    /// The key is so old that the server may have forgotten it: sent again, the request could be a
    /// new operation. It was not sent.
    #[error("the key is too old to be sent again")]
    Expired,
    /// The body of the request is a stream, which cannot be sent again. The request was not sent.
    #[error("the body of the request is a stream and cannot be sent again")]
    StreamingBody,
    /// The label, or the key, belongs to a different request. This request was not sent; the other
    /// one may have been done.
    #[error("the label or the key belongs to a different request")]
    LabelReused,
    /// The operation was not resumed, because its credentials are not stored.
    #[error("the credentials of the operation are not stored; add them with `Resume::credentials`")]
    Credentials,
    /// The store of pending operations failed, or there is none. The request was not sent by this
    /// call.
    #[error("the store of pending operations failed")]
    Store,
    /// The request is invalid, has two keys, or another middleware failed.
    #[error("the request failed")]
    Request,
    /// The request did not reach the middleware of [`ClientIdempotency`](crate::ClientIdempotency):
    /// the client has none, or another middleware in front of it responded. It was sent at most
    /// once, with its key.
    #[error(
        "the client has no middleware for idempotency; build it with `ClientIdempotency::client`"
    )]
    NotInstalled,
}

/// Whether an operation may have been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The operation was not run: no attempt could be connected, or the guard of the server has
    /// proved that it ran none (`Idempotency-Not-Run`). No other response proves that. What sends
    /// requests again by itself, such as another middleware, or a gateway that repeats a `POST`
    /// (against RFC 9110 §9.2.2), can hide an attempt that was run.
    NotDone,
    /// The operation may have been done.
    Unknown,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotDone => "it was not done",
            Self::Unknown => "it may have been done",
        })
    }
}

fn attempts_text(attempts: u32, status: Option<StatusCode>) -> String {
    match (attempts, status) {
        (0, _) => String::new(),
        (1, None) => " (1 attempt)".to_owned(),
        (1, Some(status)) => format!(" (1 attempt, last status {status})"),
        (_, None) => format!(" ({attempts} attempts)"),
        (_, Some(status)) => format!(" ({attempts} attempts, last status {status})"),
    }
}

impl Error {
    /// Returns why the operation ended.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns whether the operation may have been done.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Returns the key of the operation, if it has one: to look the operation up, or to send it
    /// again later with [`key`](crate::IdempotentRequestBuilder::key).
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// Returns how often the request was sent by this call.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns the status of the last response, if there was one.
    #[must_use]
    pub fn last_status(&self) -> Option<StatusCode> {
        self.last_status
    }

    /// Returns the reference that the server has given for the operation, such as the id of what
    /// it was about to create.
    #[must_use]
    pub fn reference(&self) -> Option<&str> {
        self.reference.as_deref()
    }

    /// An error before the first attempt.
    pub(crate) fn before(kind: ErrorKind, key: Option<Key>) -> Self {
        Self {
            kind,
            outcome: Outcome::NotDone,
            key,
            attempts: 0,
            last_status: None,
            reference: None,
            source: None,
        }
    }

    pub(crate) fn without_source(&self) -> Self {
        let Self { kind, outcome, ref key, attempts, last_status, ref reference, .. } = *self;
        let (key, reference) = (key.clone(), reference.clone());
        Self { kind, outcome, key, attempts, last_status, reference, source: None }
    }

    pub(crate) fn caused_by(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..self }
    }
}
