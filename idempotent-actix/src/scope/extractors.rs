//! The extractors of a handler, which a lookup runs as a replay does.

use std::{fmt, marker::PhantomData};

use actix_web::{Either, FromRequest, HttpRequest, dev::Payload, web};
use bytes::Bytes;

use crate::{declaration::Check, operation::Operation};

/// An extractor whose result does not depend on who sends the request, such as a parser of the
/// body.
///
/// A [lookup](crate::Idempotency::lookup_resource) shows nothing that a replay would not show: it
/// runs the extractors of the handler, and if one of them refuses the request, the lookup is
/// refused. Only extractors that implement this trait are left out, because a lookup has neither
/// the body nor the path and the query of the request: [`web::Json`], [`web::Form`],
/// [`web::Bytes`](Bytes), `String`, [`web::Payload`], [`web::Path`], [`web::Query`], [`web::Data`],
/// [`Operation`] and [`Tx`](crate::Tx).
///
/// Implement it for your own extractor if it reads the body, or contains an `Operation` or a `Tx`,
/// and checks nothing about the caller:
///
/// ```
/// use idempotent_actix::scope::IgnoresCaller;
///
/// /// A JSON body whose values have been validated.
/// struct Valid<T>(T);
///
/// impl<T> IgnoresCaller for Valid<T> {}
/// ```
///
/// If it verifies a signature, a token or a right, do not implement it: a lookup would show what
/// the extractor protects.
pub trait IgnoresCaller {}

impl<T> IgnoresCaller for web::Json<T> {}
impl<T> IgnoresCaller for web::Form<T> {}
impl<T> IgnoresCaller for web::Path<T> {}
impl<T> IgnoresCaller for web::Query<T> {}
impl<T: ?Sized> IgnoresCaller for web::Data<T> {}
impl IgnoresCaller for Bytes {}
impl IgnoresCaller for String {}
impl IgnoresCaller for web::Payload {}
impl IgnoresCaller for Operation {}
#[cfg(feature = "_tx")]
impl<D: sqlx::Database> IgnoresCaller for crate::Tx<D> {}
impl<T: IgnoresCaller> IgnoresCaller for Option<T> {}
impl<T: IgnoresCaller, E> IgnoresCaller for Result<T, E> {}
impl<L: IgnoresCaller, R: IgnoresCaller> IgnoresCaller for Either<L, R> {}

/// The extractor of one parameter.
///
/// Which of the methods `check` is called depends on its type: the inherent one if it
/// [`IgnoresCaller`], or else that of [`RunsExtractor`]. A type that is no extractor has that of
/// [`IsNoExtractor`], because rustc reports it where actix-web needs one.
pub struct Extractor<T: ?Sized>(PhantomData<fn() -> T>);

impl<T: ?Sized> fmt::Debug for Extractor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Extractor")
    }
}

impl<T: ?Sized> Extractor<T> {
    /// The extractor.
    pub const NEW: Self = Self(PhantomData);
}

impl<T: IgnoresCaller> Extractor<T> {
    /// Runs nothing.
    #[must_use]
    pub fn check(&self, _: &HttpRequest) -> Check {
        None
    }
}

/// An extractor that may depend on who sends the request.
pub trait RunsExtractor {
    /// Runs the extractor.
    fn check(&self, request: &HttpRequest) -> Check;
}

impl<T: FromRequest + 'static> RunsExtractor for Extractor<T> {
    fn check(&self, request: &HttpRequest) -> Check {
        let extracted = T::from_request(request, &mut Payload::None);
        Some(Box::pin(async move { extracted.await.map(drop).map_err(Into::into) }))
    }
}

/// A type that is no extractor.
pub trait IsNoExtractor {
    /// Runs nothing.
    fn check(&self, _: &HttpRequest) -> Check {
        None
    }
}

impl<T: ?Sized> IsNoExtractor for &Extractor<T> {}

/// Whether a scope is a part of the path, which a lookup does not have.
pub trait InPath {
    /// Whether it is.
    const IN_PATH: bool = false;
}

impl<T: ?Sized> InPath for Extractor<T> {}

/// Types that contain a part of the path.
macro_rules! in_path {
    ($($type:ty),*) => { $(
        impl<T> Extractor<$type> {
            /// Whether the scope is a part of the path.
            pub const IN_PATH: bool = true;
        }
    )* };
}

in_path!(web::Path<T>, Option<web::Path<T>>);
