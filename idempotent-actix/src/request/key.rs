//! The key of a request whose key is in its body.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

use actix_web::{Error, HttpRequest, HttpResponse, error::InternalError};
use idempotent_core::Key;
use idempotent_http::key::KeyHeaderError;

use super::checks::{accepted, malformed, refuse};
use crate::{
    handle_of_request::misconfigured,
    idempotency::Idempotency,
    key_source::{self, KeySource},
    operation::extraction::{NotRead, UnreadOperation},
    outcome::RequestOutcome,
    problem::ProblemKind,
};

/// A key that will be read from the body.
pub(super) struct PendingKey {
    source: KeySource,
    pub(super) operation: Rc<UnreadOperation>,
}

impl Drop for PendingKey {
    /// If the body was not read to its end or its key was refused, an extractor must not wait.
    fn drop(&mut self) {
        self.operation.resolve(Err(NotRead));
    }
}

impl PendingKey {
    pub(super) fn new(source: KeySource) -> Self {
        Self { source, operation: Rc::default() }
    }

    /// Reads the key. An error is the response that refuses the request.
    pub(super) fn read(
        &self,
        required: bool,
        idempotency: &Idempotency,
        request: &HttpRequest,
        body: &[u8],
    ) -> Result<Option<Key>, Error> {
        let source = self.source;
        let text = match source {
            KeySource::Function(function) => {
                catch_unwind(AssertUnwindSafe(|| function(request, body)))
                    .map_err(|_| {
                        idempotency.count_refused(request, RequestOutcome::Unavailable);
                        misconfigured(request, "the key function panicked")
                    })?
                    .map_err(|error| {
                        idempotency.count_refused(request, RequestOutcome::Refused);
                        refused_by_function(error)
                    })
            }
            KeySource::Place(place) => key_source::read(place, request, body).map_err(|fault| {
                refuse(idempotency, &malformed(idempotency, place, &fault), request)
            }),
        };
        let Some(text) = text? else {
            return if required { Err(self.missing(idempotency, request)) } else { Ok(None) };
        };
        let key = Key::from_text(text).map_err(|error| KeyHeaderError::from(error).into());
        accepted(idempotency, key)
            .map(Some)
            .map_err(|fault| refuse(idempotency, &malformed(idempotency, source, &fault), request))
    }

    fn missing(&self, idempotency: &Idempotency, request: &HttpRequest) -> Error {
        let kind = ProblemKind::KeyMissing;
        let detail = match self.source {
            KeySource::Function(_) => kind.advice().to_owned(),
            KeySource::Place(place) => {
                format!("Send a new UUID in the {place} for each operation.")
            }
        };
        refuse(idempotency, &idempotency.problem(kind, detail), request)
    }
}

/// The response of a key function's error.
fn refused_by_function(error: Error) -> Error {
    let cause = "the key function refused the request";
    let response = RequestOutcome::Refused.attach(HttpResponse::from_error(error));
    InternalError::from_response(cause, response).into()
}
