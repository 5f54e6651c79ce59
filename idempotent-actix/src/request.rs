//! From a request to its key and digest.
//!
//! The guard is the first extractor of each annotated handler, so actix builds and polls it before the others. It takes the
//! request's payload, reads it whole within the limit, and leaves the others a payload that gives them the same bytes.

use std::{
    cell::{Cell, OnceCell, RefCell},
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use actix_web::{
    Error, FromRequest, HttpMessage, HttpRequest,
    dev::Payload,
    error::InternalError,
    http::{
        Version,
        header::{self, HeaderValue},
    },
};
use bytes::Bytes;
use futures_util::Stream;
use idempotent_core::{BodyForm, Digester, Key, RequestDigest, canonical_json};

use crate::{
    idempotency::Idempotency,
    in_flight::Counted,
    operation::{Slot, misconfigured},
    outcome::RequestOutcome,
    private::{BodyUse, Methods, Presence},
    problem::{Problem, ProblemKind},
};

mod refill;

pub(crate) use self::refill::Pieces;
use self::refill::{End, Refill};

/// The first extractor of an annotated handler. `K` says whether a key must be there, `M` which methods are guarded, `B` how the body
/// counts.
pub struct Guard<K, M, B> {
    pub(crate) request: HttpRequest,
    pub(crate) idempotency: Idempotency,
    pub(crate) keyed: Option<Keyed>,
    marker: PhantomData<(K, M, B)>,
}

impl<K, M, B> std::fmt::Debug for Guard<K, M, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guard")
    }
}

/// Marks a request that a guard has let pass without a key.
pub(crate) struct Unkeyed;

/// What a request with a key says.
pub(crate) struct Keyed {
    pub(crate) slot: Rc<Slot>,
    pub(crate) said: Said,
}

/// The request's digest, or its body where the application makes the fingerprint.
pub(crate) enum Said {
    Digest(RequestDigest),
    Body(Bytes),
}

impl<K, M, B> Guard<K, M, B> {
    /// The request, for a scope function.
    #[must_use]
    pub fn request(&self) -> &HttpRequest {
        &self.request
    }

    /// Makes the fingerprint with the application's own function. Where the function panics, the request is refused.
    #[must_use]
    pub fn fingerprint_by<F>(mut self, function: F) -> Self
    where
        F: for<'a> FingerprintFunction<'a>,
    {
        if let Some(keyed) = &mut self.keyed
            && let Said::Body(body) = &keyed.said
        {
            let mut digester = digester(&self.request, BodyForm::Custom);
            match catch_unwind(AssertUnwindSafe(|| digester.update(function(&self.request, body).as_ref()))) {
                Ok(()) => keyed.said = Said::Digest(digester.finish()),
                Err(_) => drop(misconfigured(&self.request, "the fingerprint function panicked")),
            }
        }
        self
    }
}

/// A function from a request and its body to what the request means. What it returns may borrow from both.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a fingerprint function",
    label = "is not a function from `&HttpRequest` and `&[u8]` to bytes",
    note = "a fingerprint function takes `&HttpRequest` and the body as `&[u8]`, and returns bytes, such as `Vec<u8>`, `String` or `&[u8]`"
)]
pub trait FingerprintFunction<'a>: FnOnce(&'a HttpRequest, &'a [u8]) -> Self::Bytes {
    type Bytes: AsRef<[u8]>;
}

#[diagnostic::do_not_recommend]
impl<'a, F, R> FingerprintFunction<'a> for F
where
    F: FnOnce(&'a HttpRequest, &'a [u8]) -> R,
    R: AsRef<[u8]>,
{
    type Bytes = R;
}

impl<K: Presence, M: Methods, B: BodyUse> FromRequest for Guard<K, M, B> {
    type Error = Error;
    type Future = Reading<K, M, B>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let idempotency = match Idempotency::of(request) {
            Ok(idempotency) => idempotency,
            Err(error) => return Reading::refused(error),
        };
        let slot = match check::<K, M>(idempotency, request) {
            Ok(Some(key)) => {
                Rc::new(Slot { key, claimed: OnceCell::new(), detached: Cell::new(false), counted: Counted::default() })
            }
            Ok(None) => {
                request.extensions_mut().insert(Unkeyed);
                if asks_for_websocket(request) {
                    refill::end_after(payload, content_length(request).unwrap_or(0));
                }
                return Reading::unkeyed(request, idempotency);
            }
            Err(problem) => return Reading::refused(refuse(idempotency, &problem, request)),
        };
        if B::FORM != BodyForm::Nothing && matches!(payload, Payload::None) && has_payload(request) {
            return Reading::refused(body_is_gone(idempotency, request));
        }
        request.extensions_mut().insert(slot.clone());
        let body = Rc::new(RefCell::new(Refill::default()));
        let refilled = refill::payload(body.clone());
        Reading {
            guard: Some(Ok(Guard {
                request: request.clone(),
                idempotency: idempotency.clone(),
                keyed: Some(Keyed { slot, said: Said::Body(Bytes::new()) }),
                marker: PhantomData,
            })),
            source: Some(std::mem::replace(payload, refilled)),
            body,
            digester: (B::FORM == BodyForm::Raw).then(|| digester(request, BodyForm::Raw)),
            length: 0,
            end: asks_for_websocket(request).then(|| content_length(request).unwrap_or(0)),
        }
    }
}

/// Whether actix-http takes the rest of the connection for the body, up to its end: so it does for `Upgrade: websocket`, whatever the
/// method. The server may ignore the header (RFC 9110 §7.8); the body then is as long as `Content-Length` says, or empty (RFC 9112 §6.3).
fn asks_for_websocket(request: &HttpRequest) -> bool {
    let mut upgrades = request.headers().get_all(header::UPGRADE).map(|value| value.as_bytes().trim_ascii());
    request.version() < Version::HTTP_2
        && upgrades.any(|upgrade| upgrade.eq_ignore_ascii_case(b"websocket"))
        && !request.headers().contains_key(header::TRANSFER_ENCODING)
}

/// Checks what can be checked before the body is read; gives the key, if there is one.
fn check<K: Presence, M: Methods>(idempotency: &Idempotency, request: &HttpRequest) -> Result<Option<Key>, Problem> {
    if !M::METHODS.contains(request.method()) {
        let detail = format!("{} is not guarded by idempotency keys here", request.method());
        return Err(idempotency.problem(ProblemKind::MethodNotAllowed, detail).allow(M::METHODS));
    }
    let settings = idempotency.settings();
    let mut lines = request.headers().get_all(&settings.header);
    let key = match (lines.next(), lines.next()) {
        (None, _) if K::REQUIRED => {
            let detail = format!("send a header line `{}` with a new UUID for each operation", settings.header);
            return Err(idempotency.problem(ProblemKind::KeyMissing, detail));
        }
        (None, _) => return Ok(None),
        (Some(line), None) => Key::parse(line.as_bytes()).map_err(|error| error.to_string()),
        (Some(_), Some(_)) => Err("there is more than one key".into()),
    };
    let key = key.and_then(|key| settings.key_rule.check(&key).map(|()| key));
    let key = key.map_err(|detail| idempotency.problem(ProblemKind::KeyMalformed, detail))?;
    match content_length(request) {
        Some(length) if length > settings.body_limit => Err(too_large(idempotency)),
        _ => Ok(Some(key)),
    }
}

fn content_length(request: &HttpRequest) -> Option<usize> {
    request.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Whether the server has handed a payload over: with HTTP/2 always, even for an empty body, which needs neither of the two headers.
fn has_payload(request: &HttpRequest) -> bool {
    request.version() == Version::HTTP_2
        || request.headers().contains_key(header::TRANSFER_ENCODING)
        || content_length(request).is_some_and(|length| length > 0)
}

/// Whether middleware has read a part of the body and left the rest. The server's own payload has as many bytes as `Content-Length`
/// says, or ends in an error. A body that middleware has replaced by `Payload::from(bytes)` looks like the server's own, so a shorter
/// one counts as cut unless middleware corrects or removes `Content-Length`. A `Payload::Stream` may have any length but zero.
///
/// Of a body that does not state its length (HTTP/2, or chunked) nothing tells how much is missing. It counts as read where nothing is
/// left and the request has a `Content-Type`, which requests without a body have no use for.
fn is_cut(request: &HttpRequest, source: &Payload, length: usize) -> bool {
    let Some(stated) = content_length(request) else {
        return length == 0 && has_payload(request) && request.headers().contains_key(header::CONTENT_TYPE);
    };
    if matches!(source, Payload::Stream { .. }) { length == 0 && stated > 0 } else { length < stated }
}

/// The refusal of a request whose body middleware has read. The fingerprint would be that of what is left, and any other body would
/// get this one's response.
fn body_is_gone(idempotency: &Idempotency, request: &HttpRequest) -> Error {
    tracing::error!(
        path = request.path(),
        "middleware has read the body; restore it with `set_payload`, and correct or remove `Content-Length` if it is shorter"
    );
    let problem = idempotency.problem(ProblemKind::Misconfigured, ProblemKind::Misconfigured.advice());
    let response = idempotency.render(&problem, RequestOutcome::Unavailable, request);
    InternalError::from_response("the body is gone", response).into()
}

fn too_large(idempotency: &Idempotency) -> Problem {
    let detail = format!("a body may have {} bytes", idempotency.settings().body_limit);
    idempotency.problem(ProblemKind::BodyTooLarge, detail)
}

fn refuse(idempotency: &Idempotency, problem: &Problem, request: &HttpRequest) -> Error {
    let response = idempotency.render(problem, RequestOutcome::Refused, request);
    InternalError::from_response(problem.kind().code(), response).into()
}

fn digester(request: &HttpRequest, form: BodyForm) -> Digester {
    let content_type = request.headers().get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let encoding = request.headers().get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes);
    // Without an encoding the digest is what it always was.
    let joined = encoding.map(|encoding| [content_type, b"\0", encoding].concat());
    let content = joined.as_deref().unwrap_or(content_type);
    Digester::new(request.method().as_str(), request.path(), request.query_string(), content, form)
}

/// Reads the body, then yields the guard.
pub struct Reading<K, M, B> {
    guard: Option<Result<Guard<K, M, B>, Error>>,
    /// The request's own payload, until it is read.
    source: Option<Payload>,
    body: Rc<RefCell<Refill>>,
    /// Takes the body in as it arrives, where the bytes as sent are what counts.
    digester: Option<Digester>,
    length: usize,
    /// The body's length, where the payload does not end with the body.
    end: Option<usize>,
}

impl<K, M, B> Unpin for Reading<K, M, B> {}

impl<K, M, B> Drop for Reading<K, M, B> {
    /// What was not read to its end never will be. A task that an extractor has started may wait for it.
    fn drop(&mut self) {
        let waker = self.body.borrow_mut().finish(End::Broken);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<K, M, B> std::fmt::Debug for Reading<K, M, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reading")
    }
}

impl<K, M, B> Reading<K, M, B> {
    fn done(guard: Result<Guard<K, M, B>, Error>) -> Self {
        Self { guard: Some(guard), source: None, body: Rc::default(), digester: None, length: 0, end: None }
    }

    fn refused(error: Error) -> Self {
        Self::done(Err(error))
    }

    fn unkeyed(request: &HttpRequest, idempotency: &Idempotency) -> Self {
        let (request, idempotency) = (request.clone(), idempotency.clone());
        Self::done(Ok(Guard { request, idempotency, keyed: None, marker: PhantomData }))
    }

    /// Reads on; gives an error where the request is refused.
    ///
    /// `counts`: whether the body is part of the fingerprint.
    fn read(&mut self, source: &mut Payload, counts: bool, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(Ok(guard)) = &self.guard else { return Poll::Ready(Ok(())) };
        while self.end.is_none_or(|end| self.length < end) {
            let Some(chunk) = ready!(Pin::new(&mut *source).poll_next(cx)) else { break };
            let mut chunk = chunk?;
            if let Some(end) = self.end {
                chunk.truncate(end - self.length);
            }
            self.length = self.length.saturating_add(chunk.len());
            if self.length > guard.idempotency.settings().body_limit {
                return Poll::Ready(Err(refuse(&guard.idempotency, &too_large(&guard.idempotency), &guard.request)));
            }
            if let Some(digester) = &mut self.digester {
                digester.update(&chunk);
            }
            self.body.borrow_mut().push(chunk);
        }
        if counts && is_cut(&guard.request, source, self.length) {
            return Poll::Ready(Err(body_is_gone(&guard.idempotency, &guard.request)));
        }
        Poll::Ready(Ok(()))
    }
}

impl<K: Presence, M: Methods, B: BodyUse> Future for Reading<K, M, B> {
    type Output = Result<Guard<K, M, B>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(mut source) = self.source.take() {
            match self.read(&mut source, B::FORM != BodyForm::Nothing, cx) {
                Poll::Pending => {
                    self.source = Some(source);
                    return Poll::Pending;
                }
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
            let digester = self.digester.take();
            let mut body = self.body.borrow_mut();
            let request = self.guard.as_ref().and_then(|guard| Some(&guard.as_ref().ok()?.request));
            let said = request.map(|request| said(B::FORM, request, digester, &mut body));
            let waker = body.finish(End::Whole);
            drop(body);
            if let (Some(Ok(Guard { keyed: Some(keyed), .. })), Some(said)) = (&mut self.guard, said) {
                keyed.said = said;
            }
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        // actix does not poll an extractor again once it is ready.
        self.guard.take().map_or(Poll::Pending, Poll::Ready)
    }
}

/// What a request whose body is read says.
fn said(form: BodyForm, request: &HttpRequest, raw: Option<Digester>, body: &mut Refill) -> Said {
    match (form, raw) {
        (_, Some(raw)) => Said::Digest(raw.finish()),
        (BodyForm::Custom, None) => Said::Body(body.joined()),
        (BodyForm::Nothing, None) => Said::Digest(digester(request, form).finish()),
        (BodyForm::Json | BodyForm::Raw, None) => {
            let body = body.joined();
            let canonical = canonical_json(&body);
            let (form, bytes) = canonical.as_ref().map_or((BodyForm::Raw, &*body), |json| (BodyForm::Json, json));
            let mut digester = digester(request, form);
            digester.update(bytes);
            Said::Digest(digester.finish())
        }
    }
}
