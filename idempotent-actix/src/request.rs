//! Reads the key and computes the digest of a request.
//!
//! [`Guard`] is the first extractor of each annotated handler, so actix-web creates and polls it
//! before the others. It takes the request's payload, reads it whole within the limit, and leaves a
//! payload that yields the same bytes to the other extractors.

use std::{
    cell::RefCell,
    fmt,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

use actix_web::{Error, FromRequest, HttpMessage, HttpRequest, dev::Payload};
use bytes::Bytes;
use idempotent_core::{Key, RequestDigest, ScopeId};
use idempotent_http::digest::BodyForm;

use self::{body_buffer::BodyBuffer, checks::HeadKey, key::PendingKey, reading::GuardFuture};
use crate::{
    declaration::{
        Declaration, RequestScope,
        markers::{BodyUse, ConfiguredHeader, KeyOrigin, Methods, Presence},
    },
    handle_of_request::misconfigured,
    idempotency::Idempotency,
    operation::{OperationContext, extraction::RequestOperation},
    outcome::RequestOutcome,
};

mod body_buffer;
mod checks;
mod digest;
mod key;
mod reading;

/// The first extractor of an annotated handler. `K` states whether a key is required, `M` which
/// methods are guarded, `B` how the body contributes to the fingerprint, and `S` where the key is.
pub struct Guard<K, M, B, S = ConfiguredHeader> {
    pub(crate) request: HttpRequest,
    pub(crate) idempotency: Idempotency,
    pub(crate) keyed: Option<KeyedRequest>,
    marker: PhantomData<(K, M, B, S)>,
}

impl<K, M, B, S> fmt::Debug for Guard<K, M, B, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

/// A request with a key.
pub(crate) struct KeyedRequest {
    pub(crate) context: Rc<OperationContext>,
    pub(crate) content: RequestContent,
}

impl KeyedRequest {
    /// A request whose body has not been read.
    fn new(key: Key) -> Self {
        let content = RequestContent::Body(Bytes::new());
        Self { context: OperationContext::new(key), content }
    }
}

/// What the fingerprint is made of.
pub(crate) enum RequestContent {
    /// The digest of the request.
    Digest(RequestDigest),
    /// The body, for the application's own fingerprint function, or for a part of its JSON.
    Body(Bytes),
}

impl<K, M, B, S> Guard<K, M, B, S> {
    fn new(request: &HttpRequest, idempotency: &Idempotency, keyed: Option<KeyedRequest>) -> Self {
        let (request, idempotency) = (request.clone(), idempotency.clone());
        Self { request, idempotency, keyed, marker: PhantomData }
    }

    /// Returns the request, for a scope function.
    #[must_use]
    pub fn request(&self) -> &HttpRequest {
        &self.request
    }

    /// Returns the scope that the operation's scope function finds. An operation without a scope
    /// function has no scope here.
    ///
    /// # Errors
    /// Fails if there is no principal.
    pub fn scope(&self, operation: &Declaration) -> Result<ScopeId, Option<Error>> {
        match operation.scope {
            Some(RequestScope::Function(function)) => function.find(&self.request),
            Some(RequestScope::Parameter(_)) | None => Err(None),
        }
    }
}

impl<K, M, B: BodyUse, S> Guard<K, M, B, S> {
    /// Makes the fingerprint with the application's own function. If the function panics, the
    /// request is refused.
    #[must_use]
    pub fn fingerprint_by<F>(mut self, function: F) -> Self
    where
        F: for<'a> FingerprintFunction<'a>,
    {
        if let Some(keyed) = &mut self.keyed
            && let RequestContent::Body(body) = &keyed.content
        {
            let mut digester = B::HEAD.digester(&self.request, BodyForm::Custom);
            let digested = catch_unwind(AssertUnwindSafe(|| {
                digester.update(function(&self.request, body).as_ref());
            }));
            match digested {
                Ok(()) => keyed.content = RequestContent::Digest(digester.finish()),
                // The error goes to the log; the marker that it leaves refuses the request.
                Err(_) => drop(misconfigured(&self.request, "the fingerprint function panicked")),
            }
        }
        self
    }
}

/// A fingerprint function. Its result may borrow from the request and from the body.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a fingerprint function",
    label = "is not a function from `&HttpRequest` and `&[u8]` to bytes",
    note = "a fingerprint function takes `&HttpRequest` and the body as `&[u8]`, and returns \
            bytes, such as `Vec<u8>`, `String` or `&[u8]`"
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

impl<K: Presence, M: Methods, B: BodyUse, S: KeyOrigin> FromRequest for Guard<K, M, B, S> {
    type Error = Error;
    type Future = GuardFuture<K, M, B, S>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let idempotency = match Idempotency::of(request) {
            Ok(idempotency) => idempotency,
            Err(error) => return GuardFuture::refused(error),
        };
        let Ok(source) = S::source() else {
            idempotency.count_refused(request, RequestOutcome::Unavailable);
            return GuardFuture::refused(misconfigured(
                request,
                "the key function of a handler cannot be found: another handler of the same macro \
                 call has the same name; rename one of them",
            ));
        };
        let stated = checks::content_length(request);
        let head = checks::check_head::<K, M>(idempotency, request, source, stated);
        let (keyed, pending) = match head {
            Ok(HeadKey::Key(key)) => (Some(KeyedRequest::new(key)), None),
            Ok(HeadKey::InBody(source)) => (None, Some(PendingKey::new(source))),
            Ok(HeadKey::Missing) => {
                request.extensions_mut().insert(RequestOperation::Unkeyed);
                if let Some(length) = checks::websocket_body_length(request) {
                    body_buffer::end_after(payload, length);
                }
                return GuardFuture::ready(Ok(Guard::new(request, idempotency, None)));
            }
            Err(problem) => {
                return GuardFuture::refused(checks::refuse(idempotency, &problem, request));
            }
        };
        let needs_body = B::FORM != BodyForm::Ignored || pending.is_some();
        if needs_body && matches!(payload, Payload::None) && checks::has_payload(request) {
            return GuardFuture::refused(checks::body_is_gone(idempotency, request));
        }
        let operation = match (&keyed, &pending) {
            (Some(keyed), _) => RequestOperation::Keyed(keyed.context.clone()),
            (None, Some(pending)) => RequestOperation::Pending(pending.operation.clone()),
            (None, None) => RequestOperation::Unkeyed,
        };
        request.extensions_mut().insert(operation);
        let body = Rc::new(RefCell::new(BodyBuffer::default()));
        let source = std::mem::replace(payload, body_buffer::payload(body.clone()));
        let guard = Guard::new(request, idempotency, keyed);
        GuardFuture::reading(guard, pending, source, body, stated)
    }
}
