//! What a call site says of its operation. It travels with the request.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use http::{HeaderMap, HeaderName};
use idempotent_http::Key;
use reqwest::Response;

use crate::{
    error::{BoxError, Error, ErrorKind, Outcome},
    key::from_header,
    pending::PendingOperation,
};

const NO_KEY: &str =
    "the header of the request has no valid key, or one in quotes that it does not need";
const SEVERAL_LINES: &str = "the request has several idempotency keys";
const TWO_KEYS: &str = "the header of the request has another key than the operation";

#[derive(Clone, Default)]
pub(crate) struct Marker {
    /// The key. Every pass through the middleware uses it.
    pub(crate) key: Option<Key>,
    /// Whether the application has chosen the key.
    pub(crate) is_chosen: bool,
    pub(crate) begun_at: Option<SystemTime>,
    pub(crate) label: Option<String>,
    pub(crate) deadline: Option<Duration>,
    /// The stored operation, if it is being resumed.
    pub(crate) resumed: Option<Arc<PendingOperation>>,
    /// Set by the middleware.
    pub(crate) is_guarded: Arc<AtomicBool>,
}

impl Marker {
    /// Uses the key of the request's header. Fails if the call site has chosen another one.
    pub(crate) fn choose(self, key: Key) -> Result<Self, Error> {
        let other = self.key.as_ref().filter(|chosen| self.is_chosen && **chosen != key);
        if other.is_some() {
            return Err(unknown(ErrorKind::Request, key).caused_by(TWO_KEYS));
        }
        Ok(Self { key: Some(key), is_chosen: true, ..self })
    }

    /// The outcome before the first attempt: a key that was chosen, and a label, may belong to an
    /// operation that was begun earlier.
    pub(crate) fn outcome_before(&self) -> Outcome {
        let may_be_done = self.is_chosen || self.label.is_some();
        if may_be_done { Outcome::Unknown } else { Outcome::NotDone }
    }

    /// The result of a request that was sent with this marker.
    pub(crate) fn result(
        &self,
        key: Key,
        sent: reqwest_middleware::Result<Response>,
    ) -> Result<Response, Error> {
        let error = match sent {
            Ok(response) if self.is_guarded.load(Ordering::Relaxed) => return Ok(response),
            Ok(_) => return Err(unknown(ErrorKind::NotInstalled, key)),
            Err(error) => error,
        };
        let error: BoxError = match error {
            reqwest_middleware::Error::Middleware(error) => match error.downcast::<Error>() {
                Ok(error) => return Err(error),
                // A middleware around this one has wrapped the error.
                Err(error) => {
                    let inner = error.chain().find_map(inner_error).map(Error::without_source);
                    if let Some(inner) = inner {
                        return Err(inner.caused_by(error));
                    }
                    error.into()
                }
            },
            reqwest_middleware::Error::Reqwest(error) => error.without_url().into(),
        };
        let kind = if self.is_guarded.load(Ordering::Relaxed) {
            ErrorKind::Request
        } else {
            ErrorKind::NotInstalled
        };
        Err(unknown(kind, key).caused_by(error))
    }
}

/// The key in a header. Fails if it is invalid, or if there are several lines: servers differ in
/// which one they take.
pub(crate) fn chosen_key(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Key>, Error> {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    let key = from_header(line);
    let invalid = Error::before(ErrorKind::Request, None);
    match (key, lines.next()) {
        // An earlier request may have had one of them.
        (_, Some(_)) => {
            Err(Error { outcome: Outcome::Unknown, ..invalid }.caused_by(SEVERAL_LINES))
        }
        (None, None) => Err(invalid.caused_by(NO_KEY)),
        (key, None) => Ok(key),
    }
}

/// The error of this crate that a middleware has passed on.
fn inner_error<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
    // The source of such an error is the source of what it contains.
    if let Some(reqwest_middleware::Error::Middleware(error)) = cause.downcast_ref() {
        return error.downcast_ref();
    }
    cause.downcast_ref()
}

/// The error of a request that was perhaps sent by another middleware.
fn unknown(kind: ErrorKind, key: Key) -> Error {
    Error { outcome: Outcome::Unknown, ..Error::before(kind, Some(key)) }
}
