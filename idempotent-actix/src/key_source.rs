//! Where the key of a request comes from, if its handler has `key_from`.

use std::{borrow::Cow, fmt};

use actix_web::{Error, HttpMessage, HttpRequest, http::header};
use idempotent_http::key::{KeyFault, KeyPlace};
use uuid::Uuid;

/// The source of the key of a request.
#[derive(Clone, Copy, Debug)]
pub enum KeySource {
    /// A place in the request.
    Place(KeyPlace),
    /// The application's own function, with its result as text.
    Function(fn(&HttpRequest, &[u8]) -> Result<Option<String>, Error>),
}

/// A source, and the number by which a guard finds it. A type cannot contain a text or a function,
/// so the guard's type contains the number, a hash of [`source_id`].
#[derive(Debug)]
pub struct DeclaredSource {
    /// The result of [`source_id`].
    pub id: u128,
    /// The source.
    pub source: KeySource,
}

/// The FNV-1a hash of a text that identifies a source.
///
/// For a function the text contains the place of its handler, because the same path names different
/// functions in different modules.
#[must_use]
pub const fn source_id(text: &str) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0100_0000_0000_0000_0000_013b;
    let (mut hash, mut rest) = (OFFSET, text.as_bytes());
    while let Some((first, others)) = rest.split_first() {
        // `From` is not const.
        hash = (hash ^ *first as u128).wrapping_mul(PRIME);
        rest = others;
    }
    hash
}

/// Reads the text of the key from the body. `None`: there is no key.
pub(crate) fn read(
    place: KeyPlace,
    request: &HttpRequest,
    body: &[u8],
) -> Result<Option<String>, KeyFault> {
    let encodings = request.headers().get_all(header::CONTENT_ENCODING);
    place.read(body, request.content_type(), encodings.map(|encoding| encoding.as_bytes()))
}

/// The source in the words of a problem, as in "The … is invalid".
impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Place(place) => place.fmt(f),
            Self::Function(_) => f.write_str("idempotency key of the request"),
        }
    }
}

/// A return type of key functions: a string, a `Uuid`, or an `Option` or a `Result` of one of
/// these.
///
/// A key function takes the request and its body, and `key_from = "path::to::function"` names it:
///
/// ```
/// use actix_web::{HttpRequest, HttpResponse, post, web::Bytes};
/// use idempotent_actix::{idempotent, scope};
///
/// /// The first line of the body is the key.
/// fn first_line<'a>(_: &HttpRequest, body: &'a [u8]) -> Option<&'a str> {
///     std::str::from_utf8(body).ok()?.lines().next()
/// }
///
/// #[idempotent(scope = "scope::global", key_from = "first_line")]
/// #[post("/v1/messages")]
/// async fn receive(body: Bytes) -> HttpResponse {
///     HttpResponse::Accepted().finish()
/// }
/// ```
///
/// The text is the key itself: nothing is unquoted or trimmed. It may have 1 to 255 bytes of
/// printable ASCII; otherwise the request gets 400 (`key_malformed`). `None` means that the request
/// has no key. For an `Err`, the request gets the response of the error. If the function panics,
/// the request gets 500 (`misconfigured`). In each of these cases, nothing is claimed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an idempotency key",
    label = "cannot be converted to a key",
    note = "a key function takes `&HttpRequest` and the body as `&[u8]`, and returns a string, a \
            `Uuid`, an `Option` of one, or a `Result`"
)]
pub trait IntoKey {
    /// Converts the value to the text of a key; `None` if the request has no key.
    ///
    /// # Errors
    /// Fails with the error whose response the client gets.
    fn into_key(self) -> Result<Option<String>, Error>;
}

impl<T: IntoKey> IntoKey for Option<T> {
    fn into_key(self) -> Result<Option<String>, Error> {
        self.map_or(Ok(None), IntoKey::into_key)
    }
}

impl<T: IntoKey, E: Into<Error>> IntoKey for Result<T, E> {
    fn into_key(self) -> Result<Option<String>, Error> {
        self.map_err(Into::into)?.into_key()
    }
}

/// Types whose text is the key.
macro_rules! by_text {
    ($($type:ty),*) => { $(
        impl IntoKey for $type {
            fn into_key(self) -> Result<Option<String>, Error> {
                Ok(Some(self.to_string()))
            }
        }
    )* };
}

by_text!(String, &str, Cow<'_, str>, Uuid);

/// A key function. Its result may borrow from the request and from the body.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key function",
    label = "is not a function from `&HttpRequest` and `&[u8]` to a key",
    note = "a key function takes `&HttpRequest` and the body as `&[u8]`, and returns a string, a \
            `Uuid`, an `Option` of one, or a `Result`"
)]
pub trait KeyFunction<'a>: FnOnce(&'a HttpRequest, &'a [u8]) -> Self::Key {
    type Key: IntoKey;
}

#[diagnostic::do_not_recommend]
impl<'a, F, K> KeyFunction<'a> for F
where
    F: FnOnce(&'a HttpRequest, &'a [u8]) -> K,
    K: IntoKey,
{
    type Key = K;
}

/// The key that a key function returns.
///
/// # Errors
/// Fails with the function's error.
pub fn key_by<F>(function: F, request: &HttpRequest, body: &[u8]) -> Result<Option<String>, Error>
where
    F: for<'a> KeyFunction<'a>,
{
    function(request, body).into_key()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_keys_and_none_is_no_key() {
        let key = |key: &dyn Fn() -> Result<Option<String>, Error>| key().ok().flatten();
        assert_eq!(key(&|| "k".into_key()), Some("k".into()));
        assert_eq!(key(&|| String::from(" k ").into_key()), Some(" k ".into()));
        assert_eq!(key(&|| Cow::from("k").into_key()), Some("k".into()));
        let uuid = Uuid::from_u128(7);
        assert_eq!(key(&|| uuid.into_key()), Some("00000000-0000-0000-0000-000000000007".into()));
        assert_eq!(key(&|| Some("").into_key()), Some(String::new()));
        assert!(matches!(None::<String>.into_key(), Ok(None)));
        let refused: actix_web::Result<Option<&str>> = Err(actix_web::error::ErrorForbidden("no"));
        assert!(refused.into_key().is_err());
    }

    #[test]
    fn an_id_is_the_published_hash() {
        assert_eq!(source_id(""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(source_id("a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_ne!(source_id("json:/id"), source_id("form:/id"));
    }
}
