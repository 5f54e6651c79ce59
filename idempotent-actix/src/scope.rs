//! Whose key it is, as handlers say it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::LazyLock,
};

use actix_web::{Error, HttpRequest, http::header, web};
use idempotent_core::ScopeId;
use uuid::Uuid;

use crate::operation::misconfigured;

/// A parameter of a handler that names a principal: `#[idempotent(scope = "user")]` takes the scope from the parameter `user`.
///
/// Implement it for your own extractor, from an identity that the extractor has verified:
///
/// ```
/// use idempotent_actix::{ScopeId, ScopeKey};
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
/// It is implemented for [`web::ReqData`], which middleware has set, for [`web::Path`], a part of the resource's name, and for
/// [`web::Header`], each of a [`ScopeValue`]: a text, a number, a `Uuid`, or a type with a `ScopeKey` of its own.
///
/// It is not implemented for texts and numbers by themselves, nor for `Bytes`, `Json` and `Form`: as parameters these are the
/// request's body. A scope that is read from it makes each body another client's, so that a reused key runs again, where it must be
/// refused with 422. Nor is it for `Query`, which is part of the fingerprint for the same reason. A function of the request can
/// still return any of these; see [`IntoScopeKey`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whose idempotency key it is",
    label = "is not a `ScopeKey`",
    note = "a scope is a verified identity: implement `idempotent_actix::ScopeKey` for an extractor of your own, name a parameter of \
            type `web::ReqData`, `web::Path` or `web::Header`, or name a function of the request in `scope`",
    note = "the body and the query are no identity: with them as the scope, a key that is reused for another request would run again"
)]
pub trait ScopeKey {
    /// Whose key it is; `None` when there is no principal: the response is 401.
    fn scope_key(&self) -> Option<ScopeId>;
}

/// What [`web::ReqData`], [`web::Path`] and [`web::Header`] may carry to be a [`ScopeKey`]: a text, a number, a `Uuid`, or a type
/// with a `ScopeKey` of its own, which is the trait to implement.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whose idempotency key it is",
    label = "is not a `ScopeValue`",
    note = "implement `idempotent_actix::ScopeKey` for it, or use a `String`, a number or a `Uuid`"
)]
pub trait ScopeValue {
    /// Whose key it is; `None` when there is no principal.
    fn scope_value(&self) -> Option<ScopeId>;
}

impl<T: ScopeKey> ScopeValue for T {
    fn scope_value(&self) -> Option<ScopeId> {
        self.scope_key()
    }
}

/// What a scope function may return: a scope, something that can be one, or nobody.
///
/// An `Option` that is `None` and an empty string are answered with 401, an `Err` with its own response. There is no bucket that
/// nobodies share.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whose idempotency key it is",
    label = "cannot be made a scope",
    note = "a scope function takes `&HttpRequest` and returns a `Scope`, a string, a number, a `Uuid`, an `Option` of one, or a `Result`"
)]
pub trait IntoScopeKey {
    /// Makes the scope.
    ///
    /// # Errors
    /// What the client is told when there is none; `None` stands for 401.
    fn into_scope_key(self) -> Result<ScopeId, Option<Error>>;
}

impl IntoScopeKey for ScopeId {
    fn into_scope_key(self) -> Result<ScopeId, Option<Error>> {
        if self.is_empty() { Err(None) } else { Ok(self) }
    }
}

impl<T: IntoScopeKey> IntoScopeKey for Option<T> {
    fn into_scope_key(self) -> Result<ScopeId, Option<Error>> {
        self.ok_or(None)?.into_scope_key()
    }
}

impl<T: IntoScopeKey, E: Into<Error>> IntoScopeKey for Result<T, E> {
    fn into_scope_key(self) -> Result<ScopeId, Option<Error>> {
        self.map_err(|error| Some(error.into()))?.into_scope_key()
    }
}

impl<T: ScopeKey> ScopeKey for Option<T> {
    fn scope_key(&self) -> Option<ScopeId> {
        self.as_ref()?.scope_key()
    }
}

impl<T: ScopeValue + Clone + 'static> ScopeKey for web::ReqData<T> {
    fn scope_key(&self) -> Option<ScopeId> {
        (**self).scope_value()
    }
}

impl<T: ScopeValue> ScopeKey for web::Path<T> {
    fn scope_key(&self) -> Option<ScopeId> {
        (**self).scope_value()
    }
}

impl<T: ScopeValue> ScopeKey for web::Header<T> {
    fn scope_key(&self) -> Option<ScopeId> {
        (**self).scope_value()
    }
}

impl ScopeKey for ScopeId {
    fn scope_key(&self) -> Option<ScopeId> {
        Some(self.clone())
    }
}

/// Types that are scopes by their text.
macro_rules! by_text {
    ($($type:ty),*) => { $(
        impl ScopeValue for $type {
            fn scope_value(&self) -> Option<ScopeId> {
                Some(ScopeId::new(self.to_string()))
            }
        }
        impl IntoScopeKey for $type {
            fn into_scope_key(self) -> Result<ScopeId, Option<Error>> {
                ScopeId::new(self.to_string()).into_scope_key()
            }
        }
    )* };
}

by_text!(String, &str, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, Uuid);

/// The user that `actix-identity` has logged in. An identity that has expired is nobody.
#[cfg(feature = "identity")]
impl ScopeKey for actix_identity::Identity {
    fn scope_key(&self) -> Option<ScopeId> {
        self.id().ok().map(|id| ScopeId::of("identity", id))
    }
}

/// The token of a request that a validator of `actix-web-httpauth` has let in. The extractor alone does not check the token.
#[cfg(feature = "httpauth")]
impl ScopeKey for actix_web_httpauth::extractors::bearer::BearerAuth {
    fn scope_key(&self) -> Option<ScopeId> {
        Some(ScopeId::of("bearer", self.token()))
    }
}

/// The user id of a request that a validator of `actix-web-httpauth` has let in. The extractor alone does not check the password.
#[cfg(feature = "httpauth")]
impl ScopeKey for actix_web_httpauth::extractors::basic::BasicAuth {
    fn scope_key(&self) -> Option<ScopeId> {
        Some(ScopeId::of("basic", self.user_id()))
    }
}

/// Everybody shares one scope. Right only where there is a single caller, or where keys are secrets that nobody can guess: whoever
/// knows a key and the request gets its answer.
#[must_use]
pub fn global(_: &HttpRequest) -> ScopeId {
    EVERYONE.clone()
}

/// The scope that names no principal.
pub(crate) static EVERYONE: LazyLock<ScopeId> = LazyLock::new(|| ScopeId::of("global", "*"));

/// The token of `Authorization: Bearer …`, as it is: check it before, in an extractor or in middleware. A client whose token is
/// renewed between two tries is another client.
#[must_use]
pub fn bearer_token(request: &HttpRequest) -> Option<ScopeId> {
    let value = request.headers().get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"Bearer ") && !token.is_empty()).then(|| ScopeId::of("bearer", token))
}

/// The address of the peer. Behind a proxy that is the proxy, so all clients share a scope; behind a shared address (NAT) so do all
/// clients of that network; and a client that changes networks between two tries is another client.
#[must_use]
pub fn peer_ip(request: &HttpRequest) -> Option<ScopeId> {
    request.peer_addr().map(|address| ScopeId::of("ip", address.ip().to_string()))
}

/// What the macro calls for a scope that names a parameter.
#[doc(hidden)]
pub fn scope_of<T: ScopeKey + ?Sized>(parameter: &T) -> Result<ScopeId, Option<Error>> {
    parameter.scope_key().into_scope_key()
}

/// A function from a request to its scope. What it returns may borrow from the request.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a scope function",
    label = "is not a function from `&HttpRequest` to a scope",
    note = "a scope function takes `&HttpRequest` and returns a `Scope`, a string, a number, a `Uuid`, an `Option` of one, or a `Result`"
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

/// What the macro calls for a scope that names a function. Where the function panics, the request is refused: nothing has been done yet.
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
            bearer_token(&TestRequest::default().insert_header((header::AUTHORIZATION, value)).to_http_request())
        };
        assert_eq!(scope("Bearer t"), Some(ScopeId::of("bearer", "t")));
        assert_eq!(scope("bearer t"), scope("Bearer t"));
        assert_eq!(scope("Bearer "), None);
        assert_eq!(scope("Basic t"), None);
        assert_eq!(bearer_token(&TestRequest::default().to_http_request()), None);
    }

    #[test]
    fn texts_numbers_and_uuids_are_scopes_by_their_text() {
        let path = |text: &str| Some(ScopeId::new(text));
        let uuid = Uuid::from_u128(7);
        assert_eq!(scope_of(&web::Path::from(uuid)).ok(), path(&uuid.to_string()));
        assert_eq!(scope_of(&web::Path::from(-7i32)).ok(), path("-7"));
        assert_eq!(scope_of(&web::Path::from(7u16)).ok(), path("7"));
        assert_eq!(scope_of(&web::Path::from(String::from("7"))).ok(), path("7"));
        assert_eq!(scope_of(&Some(web::Path::from("7"))).ok(), path("7"));
        assert_eq!(scope_of(&web::Path::from(ScopeId::of("user", "7"))).ok(), Some(ScopeId::of("user", "7")));
        assert_eq!(7usize.into_scope_key().ok(), path("7"));
    }

    #[test]
    fn no_principal_is_no_scope() {
        assert!(matches!(scope_of(&web::Path::from("")), Err(None)));
        assert!(matches!(scope_of(&None::<web::Path<String>>), Err(None)));
        assert!(matches!(String::new().into_scope_key(), Err(None)));
        assert!(matches!(Some("").into_scope_key(), Err(None)));
        let refused: Result<String, _> = Err(actix_web::error::ParseError::Method);
        assert!(matches!(refused.into_scope_key(), Err(Some(_))));
        let refused: actix_web::Result<String> = Err(actix_web::error::ErrorForbidden("no"));
        assert!(matches!(refused.into_scope_key(), Err(Some(_))));
        assert_eq!(5u64.into_scope_key().ok(), Some(ScopeId::new("5")));
    }
}
