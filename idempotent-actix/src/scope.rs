//! Scopes: which principal an idempotency key belongs to.
//!
//! Two principals may send the same key; the scope keeps their records separate. A handler states
//! its scope in `#[idempotent(scope = "…")]`, which names one of these:
//!
//! * a parameter of the handler, whose type implements [`ScopeKey`],
//! * a scope function `fn(&HttpRequest) -> R` with `R:` [`IntoScopeKey`], such as [`bearer_token`].
//!
//! A request without a principal gets 401 (`scope_missing`): such requests never share a scope.

use std::{
    any::{type_name, type_name_of_val},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::LazyLock,
};

#[cfg(doc)]
use actix_web::web;
use actix_web::{Error, FromRequest, HttpRequest, dev::Payload, http::header};
pub use idempotent_core::ScopeId;

use crate::{
    declaration::{DeclaredFunction, RequestScope, ScopeFuture},
    handle_of_request::misconfigured,
};

pub(crate) mod extractors;
mod implementors;

pub use self::extractors::IgnoresCaller;

/// A type of handler parameter that identifies a principal: `#[idempotent(scope = "user")]` takes
/// the scope from the parameter `user`.
///
/// Implement it for your own extractor. The returned scope must come from an identity that the
/// extractor has verified:
///
/// ```
/// use idempotent_actix::scope::{ScopeId, ScopeKey};
///
/// struct User { id: u64 }
///
/// impl ScopeKey for User {
///     fn scope_key(&self) -> Option<ScopeId> {
///         Some(ScopeId::of("user", self.id.to_string()))
///     }
/// }
/// ```
///
/// `ScopeKey` is implemented for [`web::ReqData`] (data that middleware has set), [`web::Path`] and
/// [`web::Header`], if they contain a [`ScopeValue`]: a string, a number, a `Uuid`, or a type that
/// implements `ScopeKey`. It is also implemented for `Option`, references, `Box`, `Rc` and `Arc` of
/// a type that implements it.
///
/// `ScopeKey` is not implemented for plain strings and numbers, `Bytes`, `Json` and `Form`, because
/// handler parameters of these types contain the request's body. If the scope depended on the body,
/// a key that is reused with another body would be in another scope, and the request would run
/// instead of being refused with 422. For the same reason it is not implemented for `Query`, which
/// is part of the fingerprint. A scope function can still return any of these values; see
/// [`IntoScopeKey`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not identify the owner of an idempotency key",
    label = "is not a `ScopeKey`",
    note = "a scope is a verified identity: implement `idempotent_actix::scope::ScopeKey` for an \
            extractor of your own, name a parameter of type `web::ReqData`, `web::Path` or \
            `web::Header`, or name a function of the request in `scope`",
    note = "the body and the query do not identify the caller: with them as the scope, a key that \
            is reused for another request would run again"
)]
pub trait ScopeKey {
    /// Returns the scope of the request's key. For `None`, if there is no principal, the request
    /// gets 401 (`scope_missing`).
    fn scope_key(&self) -> Option<ScopeId>;
}

/// A value from which [`web::ReqData`], [`web::Path`] and [`web::Header`] take a scope: a string, a
/// number, a `Uuid`, or any type that implements [`ScopeKey`].
///
/// Implement [`ScopeKey`] for your own types, not this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not identify the owner of an idempotency key",
    label = "is not a `ScopeValue`",
    note = "implement `idempotent_actix::scope::ScopeKey` for it, or use a `String`, a number or a \
            `Uuid`"
)]
pub trait ScopeValue {
    /// Returns the scope of the request's key; `None` if there is no principal.
    fn scope_value(&self) -> Option<ScopeId>;
}

impl<T: ScopeKey> ScopeValue for T {
    fn scope_value(&self) -> Option<ScopeId> {
        self.scope_key()
    }
}

/// A return type of scope functions: a [`ScopeId`], a string, a number, a `Uuid`, or an `Option` or
/// a `Result` of one of these.
///
/// `None` and an empty string mean that there is no principal: the request gets 401
/// (`scope_missing`). For an `Err`, the request gets the response of the error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not identify the owner of an idempotency key",
    label = "cannot be converted to a scope",
    note = "a scope function takes `&HttpRequest` and returns a `ScopeId`, a string, a number, \
            a `Uuid`, an `Option` of one, or a `Result`"
)]
pub trait IntoScopeKey {
    /// Converts the value to a scope.
    ///
    /// # Errors
    /// Fails if there is no principal: with the error whose response the client gets, or with
    /// `None` for 401 (`scope_missing`).
    fn into_scope_key(self) -> Result<ScopeId, Option<Error>>;
}

/// A scope function that puts all clients into one scope, to name in `scope = "…"`.
///
/// Use it only if there is a single client, or if keys are secrets that cannot be guessed: a client
/// that knows the key and the request of another client gets the response to that request.
#[must_use]
pub fn global(_: &HttpRequest) -> ScopeId {
    GLOBAL.clone()
}

/// The scope of [`global`], which identifies no principal.
pub(crate) static GLOBAL: LazyLock<ScopeId> = LazyLock::new(ScopeId::global);

/// A scope function with one scope for each bearer token (RFC 6750 §2.1), to name in `scope = "…"`.
///
/// The token is not verified: do that before, in middleware or in an extractor. A client that gets
/// a new token between a request and its retry counts as another principal, so the retry runs the
/// handler again.
///
/// Returns `None` if the request has no `Authorization: Bearer` header with a token.
#[must_use]
pub fn bearer_token(request: &HttpRequest) -> Option<ScopeId> {
    let value = request.headers().get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"Bearer ") && !token.is_empty())
        .then(|| ScopeId::of("bearer", token))
}

/// A scope function with one scope for each IP address, to name in `scope = "…"`. The address is
/// that of the connection's peer; headers such as `X-Forwarded-For` are ignored.
///
/// All clients behind one proxy or one shared address (NAT) share a scope. A client whose address
/// changes between a request and its retry counts as another principal, so the retry runs the
/// handler again. An IPv4 address is the same client on a socket for IPv6 too, where it is
/// `::ffff:192.0.2.1`.
///
/// Returns `None` if the connection has no IP address, as with a Unix domain socket.
#[must_use]
pub fn peer_ip(request: &HttpRequest) -> Option<ScopeId> {
    request.peer_addr().map(|address| ScopeId::of("ip", address.ip().to_canonical().to_string()))
}

/// The scope of a parameter.
#[doc(hidden)]
pub fn scope_of<T: ScopeKey + ?Sized>(parameter: &T) -> Result<ScopeId, Option<Error>> {
    parameter.scope_key().into_scope_key()
}

/// A scope function. Its result may borrow from the request.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a scope function",
    label = "is not a function from `&HttpRequest` to a scope",
    note = "a scope function takes `&HttpRequest` and returns a `ScopeId`, a string, a number, \
            a `Uuid`, an `Option` of one, or a `Result`"
)]
pub trait ScopeFunction<'a>: FnOnce(&'a HttpRequest) -> Self::Key {
    type Key: IntoScopeKey;
}

#[diagnostic::do_not_recommend]
impl<'a, F, K> ScopeFunction<'a> for F
where
    F: FnOnce(&'a HttpRequest) -> K,
    K: IntoScopeKey,
{
    type Key = K;
}

/// The scope that a scope function returns. If the function panics, the request is refused, since
/// its handler has not run yet.
#[doc(hidden)]
pub fn scope_by<F>(request: &HttpRequest, function: F) -> Result<ScopeId, Option<Error>>
where
    F: for<'a> ScopeFunction<'a>,
{
    catch_unwind(AssertUnwindSafe(|| function(request).into_scope_key()))
        .unwrap_or_else(|_| Err(Some(misconfigured(request, "the scope function panicked"))))
}

/// The scope function that the attribute names, for its declaration.
#[doc(hidden)]
#[must_use]
pub const fn scope_function<F>(function: &'static F) -> Option<RequestScope>
where
    F: for<'a> ScopeFunction<'a> + Copy + Sync,
{
    Some(RequestScope::Function(function))
}

impl<F> DeclaredFunction for F
where
    F: for<'a> ScopeFunction<'a> + Copy + Sync,
{
    fn find(&self, request: &HttpRequest) -> Result<ScopeId, Option<Error>> {
        scope_by(request, *self)
    }

    fn kind(&self) -> &'static str {
        let own = [
            (type_name_of_val(&global), "global"),
            (type_name_of_val(&bearer_token), "bearer_token"),
            (type_name_of_val(&peer_ip), "peer_ip"),
        ];
        let found = own.into_iter().find(|(function, _)| *function == type_name::<F>());
        found.map_or("function", |(_, kind)| kind)
    }
}

/// What kind of scope a declaration has, in the words of the specification.
pub(crate) fn kind_of(scope: RequestScope) -> &'static str {
    match scope {
        RequestScope::Function(function) => function.kind(),
        RequestScope::Parameter(_) => "parameter",
    }
}

/// The scope of a parameter of another handler. If the extractor refuses the request, the error is
/// its own.
#[doc(hidden)]
pub fn scope_of_request<T>(
    request: &HttpRequest,
    scope: fn(T) -> Result<ScopeId, Option<Error>>,
) -> ScopeFuture
where
    T: FromRequest<Future: 'static> + 'static,
{
    let extracted = T::from_request(request, &mut Payload::None);
    Box::pin(async move { scope(extracted.await.map_err(|error| Some(error.into()))?) })
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn an_ipv4_client_is_the_same_on_a_socket_for_ipv6() {
        let scope = |peer: &str| {
            peer_ip(&TestRequest::default().peer_addr(peer.parse().unwrap()).to_http_request())
        };
        assert_eq!(scope("127.0.0.1:80"), scope("[::ffff:127.0.0.1]:81"));
        assert_eq!(scope("127.0.0.1:80"), Some(ScopeId::of("ip", "127.0.0.1")));
        assert_ne!(scope("127.0.0.1:80"), scope("[::127.0.0.1]:80"));
        assert_ne!(scope("[::1]:80"), scope("[::ffff:0.0.0.1]:80"));
    }

    #[test]
    fn a_bearer_token_is_read_in_any_case_and_never_empty() {
        let scope = |value: &str| {
            bearer_token(
                &TestRequest::default()
                    .insert_header((header::AUTHORIZATION, value))
                    .to_http_request(),
            )
        };
        assert_eq!(scope("Bearer t"), Some(ScopeId::of("bearer", "t")));
        assert_eq!(scope("bearer t"), scope("Bearer t"));
        assert_eq!(scope("Bearer "), None);
        assert_eq!(scope("Basic t"), None);
        assert_eq!(bearer_token(&TestRequest::default().to_http_request()), None);
    }
}
