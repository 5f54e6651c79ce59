//! Scopes: to whom an idempotency key belongs.
//!
//! Two principals may send the same key; the scope keeps their records separate. A handler names
//! its scope in `#[idempotent(scope = "…")]`: a parameter whose type implements [`ScopeKey`], or a
//! function of the request that returns an [`IntoScopeKey`].

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::LazyLock,
};

#[cfg(doc)]
use actix_web::web;
use actix_web::{Error, HttpRequest, http::header};
pub use idempotent_core::ScopeId;

use crate::registered::misconfigured;

mod implementors;

/// A handler's parameter that names a principal: `#[idempotent(scope = "user")]` takes the scope
/// from the parameter `user`.
///
/// Implement it for your own extractor, from an identity that the extractor has verified:
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
/// It is implemented for [`web::ReqData`], which middleware has set, for [`web::Path`], and for
/// [`web::Header`], each of a [`ScopeValue`]: a string, a number, a `Uuid`, or a type that
/// implements `ScopeKey`. It is also implemented for `Option`, and for references, `Box`, `Rc` and
/// `Arc`, of a type that implements it.
///
/// It is not implemented for strings and numbers by themselves, nor for `Bytes`, `Json` and `Form`:
/// as parameters these are the request's body. With a scope made of the body, each body would be
/// another principal's, and a reused key would run again instead of being refused with 422. Nor is
/// it implemented for `Query`, which is part of the fingerprint for the same reason. A function of
/// the request can still return any of these; see [`IntoScopeKey`].
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
    /// Returns the scope of the request's key; `None`, if there is no principal, makes the response
    /// 401 (`scope_missing`).
    fn scope_key(&self) -> Option<ScopeId>;
}

/// What [`web::ReqData`], [`web::Path`] and [`web::Header`] may carry to be a [`ScopeKey`]: a
/// string, a number, a `Uuid`, or a type that implements `ScopeKey`, which is the trait to
/// implement.
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

/// What a scope function may return: a [`ScopeId`], a string, a number, a `Uuid`, or an `Option` or
/// `Result` of one.
///
/// For `None` and for an empty string the response is 401 (`scope_missing`), for an `Err` it is the
/// error's own. Requests without a principal never share a scope.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not identify the owner of an idempotency key",
    label = "cannot be converted to a scope",
    note = "a scope function takes `&HttpRequest` and returns a `ScopeId`, a string, a number, \
            a `Uuid`, an `Option` of one, or a `Result`"
)]
pub trait IntoScopeKey {
    /// Makes the scope.
    ///
    /// # Errors
    /// When there is no principal: the error whose response the client gets, or `None` for 401.
    fn into_scope_key(self) -> Result<ScopeId, Option<Error>>;
}

/// One scope for all clients, to name in `scope = "…"`.
///
/// Use it only if there is a single client, or if keys are secrets that cannot be guessed: a client
/// that knows the key of another one, and its request, gets its response.
#[must_use]
pub fn global(_: &HttpRequest) -> ScopeId {
    GLOBAL.clone()
}

/// The scope that names no principal.
pub(crate) static GLOBAL: LazyLock<ScopeId> = LazyLock::new(|| ScopeId::of("global", "*"));

/// The token of `Authorization: Bearer …`, to name in `scope = "…"`.
///
/// It is not verified: do that before, in an extractor or in middleware. A client whose token is
/// renewed between two requests is another principal.
#[must_use]
pub fn bearer_token(request: &HttpRequest) -> Option<ScopeId> {
    let value = request.headers().get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"Bearer ") && !token.is_empty())
        .then(|| ScopeId::of("bearer", token))
}

/// The IP address of the peer, to name in `scope = "…"`.
///
/// All clients behind one proxy or one shared address (NAT) share a scope, and a client that
/// changes networks between two requests is another principal.
#[must_use]
pub fn peer_ip(request: &HttpRequest) -> Option<ScopeId> {
    request.peer_addr().map(|address| ScopeId::of("ip", address.ip().to_string()))
}

/// The scope of a parameter.
#[doc(hidden)]
pub fn scope_of<T: ScopeKey + ?Sized>(parameter: &T) -> Result<ScopeId, Option<Error>> {
    parameter.scope_key().into_scope_key()
}

/// A function from a request to its scope. What it returns may borrow from the request.
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

/// The scope that a function returns. If the function panics, the request is refused: nothing has
/// been done yet.
#[doc(hidden)]
pub fn scope_by<F>(request: &HttpRequest, function: F) -> Result<ScopeId, Option<Error>>
where
    F: for<'a> ScopeFunction<'a>,
{
    catch_unwind(AssertUnwindSafe(|| function(request).into_scope_key()))
        .unwrap_or_else(|_| Err(Some(misconfigured(request, "the scope function panicked"))))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

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
