//! The checks that a request has to pass before its key is claimed.

use std::fmt;

use actix_web::{
    Error, HttpRequest,
    dev::Payload,
    error::InternalError,
    http::{
        Method, Version,
        header::{self, HeaderValue},
    },
};
use idempotent_core::Key;
use idempotent_http::key::{KeyFault, KeyPlace, parse_key};

use crate::{
    declaration::markers::{Methods, Presence},
    idempotency::Idempotency,
    key_source::KeySource,
    not_run,
    outcome::RequestOutcome,
    problem::{Problem, ProblemKind},
};

/// The key of a request whose head has been checked.
pub(super) enum HeadKey {
    /// The header has the key.
    Key(Key),
    /// The header is missing, and the handler accepts that.
    Missing,
    /// The key is read from the body, or by a function that gets the body.
    InBody(KeySource),
}

/// Checks the head of the request; returns the key if it is in a header. `stated` is the length of
/// the body by `Content-Length`.
pub(super) fn check_head<K: Presence, M: Methods>(
    idempotency: &Idempotency,
    request: &HttpRequest,
    source: Option<KeySource>,
    stated: Option<usize>,
) -> Result<HeadKey, Problem> {
    if !M::METHODS.contains(request.method()) {
        let kind = ProblemKind::MethodNotAllowed;
        let methods: Vec<_> = M::METHODS.iter().map(Method::as_str).collect();
        return Err(idempotency.problem(kind, kind.advice()).with_allow(methods.join(", ")));
    }
    let settings = idempotency.settings();
    if !settings.enabled {
        return Ok(HeadKey::Missing);
    }
    let headers = request.headers();
    let required = idempotency.requires_key(request, K::REQUIRED);
    let key = match source {
        None => {
            let lines = headers.get_all(&settings.header);
            in_header(idempotency, required, lines, &settings.header)?
        }
        Some(KeySource::Place(KeyPlace::Header(name))) => {
            in_header(idempotency, required, headers.get_all(name), &name)?
        }
        Some(source) => HeadKey::InBody(source),
    };
    match stated {
        Some(length) if length > settings.body_limit && !matches!(key, HeadKey::Missing) => {
            Err(too_large(idempotency))
        }
        _ => Ok(key),
    }
}

/// The key in the lines of one header.
fn in_header<'a>(
    idempotency: &Idempotency,
    required: bool,
    mut lines: impl Iterator<Item = &'a HeaderValue>,
    name: &dyn fmt::Display,
) -> Result<HeadKey, Problem> {
    let key = match (lines.next(), lines.next()) {
        (None, _) if required => {
            let detail = format!("Send a new UUID in the header {name} for each operation.");
            return Err(idempotency.problem(ProblemKind::KeyMissing, detail));
        }
        (None, _) => return Ok(HeadKey::Missing),
        (Some(line), None) => parse_key(line.as_bytes()).map_err(KeyFault::Invalid),
        (Some(_), Some(_)) => Err(KeyFault::Repeated),
    };
    accepted(idempotency, key)
        .map(HeadKey::Key)
        .map_err(|fault| malformed(idempotency, format_args!("header {name}"), &fault))
}

/// The key if the application's rule accepts it.
pub(super) fn accepted(
    idempotency: &Idempotency,
    key: Result<Key, KeyFault>,
) -> Result<Key, KeyFault> {
    let key = key?;
    idempotency.settings().key_rule.check(&key)?;
    Ok(key)
}

/// The problem with a key; `place` is where it is or should be.
pub(super) fn malformed(
    idempotency: &Idempotency,
    place: impl fmt::Display,
    fault: &KeyFault,
) -> Problem {
    idempotency.problem(ProblemKind::KeyMalformed, format!("The {place} {fault}."))
}

/// The length of the body, if actix-http reads to the end of the connection instead.
///
/// It does so for `Upgrade: websocket`, whatever the method. The server may ignore the header (RFC
/// 9110 §7.8); the body then has the length of `Content-Length`, or is empty (RFC 9112 §6.3).
pub(super) fn websocket_body_length(request: &HttpRequest) -> Option<usize> {
    let upgrades = request.headers().get_all(header::UPGRADE);
    let mut upgrades = upgrades.map(|value| value.as_bytes().trim_ascii());
    let to_websocket = request.version() < Version::HTTP_2
        && upgrades.any(|upgrade| upgrade.eq_ignore_ascii_case(b"websocket"))
        && !request.headers().contains_key(header::TRANSFER_ENCODING);
    to_websocket.then(|| content_length(request).unwrap_or(0))
}

pub(super) fn content_length(request: &HttpRequest) -> Option<usize> {
    request.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Whether the server has supplied a payload. With HTTP/2 it always has, even for an empty body,
/// which needs neither of the two headers.
pub(super) fn has_payload(request: &HttpRequest) -> bool {
    request.version() == Version::HTTP_2
        || request.headers().contains_key(header::TRANSFER_ENCODING)
        || content_length(request).is_some_and(|length| length > 0)
}

/// Whether middleware has read a part of the body and left the rest.
///
/// The server's own payload has as many bytes as `Content-Length` says, or ends in an error. A body
/// that middleware has replaced by `Payload::from(bytes)` looks like the server's own, so a shorter
/// one counts as cut unless middleware corrects or removes `Content-Length`. A `Payload::Stream`
/// may have any length but zero.
///
/// If a body does not state its length (HTTP/2, or chunked), it may be empty, whatever its
/// `Content-Type`. Middleware that takes the payload of such a request leaves none, which the guard
/// notices before it reads, or a `Payload::Stream`, which the server never supplies.
pub(super) fn is_cut(
    request: &HttpRequest,
    source: &Payload,
    length: usize,
    stated: Option<usize>,
) -> bool {
    let is_replaced = matches!(source, Payload::Stream { .. });
    let Some(stated) = stated else {
        return is_replaced
            && length == 0
            && has_payload(request)
            && request.headers().contains_key(header::CONTENT_TYPE);
    };
    if is_replaced { length == 0 && stated > 0 } else { length < stated }
}

/// Refuses a request whose body middleware has read.
///
/// Its fingerprint would be that of the rest, and a request with any other body would get this
/// one's response.
pub(super) fn body_is_gone(idempotency: &Idempotency, request: &HttpRequest) -> Error {
    tracing::error!(
        pattern = request.match_pattern(),
        "middleware has read the body; restore it with `set_payload`, and correct or remove \
         `Content-Length` if it is shorter"
    );
    let problem =
        idempotency.problem(ProblemKind::Misconfigured, ProblemKind::Misconfigured.advice());
    idempotency.count_refused(request, RequestOutcome::Unavailable);
    let response = idempotency.render(&problem, RequestOutcome::Unavailable, request);
    let response = not_run::mark(response, request, &idempotency.settings().header);
    InternalError::from_response("middleware has read the body", response).into()
}

pub(super) fn too_large(idempotency: &Idempotency) -> Problem {
    let limit = idempotency.settings().body_limit;
    let detail = format!("The body may have at most {limit} bytes.");
    idempotency.problem(ProblemKind::BodyTooLarge, detail)
}

pub(super) fn refuse(idempotency: &Idempotency, problem: &Problem, request: &HttpRequest) -> Error {
    idempotency.count_refused(request, RequestOutcome::Refused);
    let response = idempotency.render(problem, RequestOutcome::Refused, request);
    InternalError::from_response(problem.kind().code(), response).into()
}
