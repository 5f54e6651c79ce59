//! The extractors of a handler, which a lookup runs as a replay does.

use std::{fmt, marker::PhantomData};

use actix_web::{Either, FromRequest, dev::Payload, web};
use bytes::Bytes;

use crate::{
    declaration::{Check, Ignored, TxDatabase},
    operation::Operation,
};

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
pub trait IgnoresCaller {
    /// Finds the database of the `Tx` in it; `None` if it has none.
    #[doc(hidden)]
    const DATABASE: Option<fn() -> TxDatabase> = None;
}

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
impl<D: sqlx::Database> IgnoresCaller for crate::Tx<D> {
    const DATABASE: Option<fn() -> TxDatabase> = Some(TxDatabase::of::<D>);
}
impl<T: IgnoresCaller> IgnoresCaller for Option<T> {
    const DATABASE: Option<fn() -> TxDatabase> = T::DATABASE;
}
impl<T: IgnoresCaller, E> IgnoresCaller for Result<T, E> {
    const DATABASE: Option<fn() -> TxDatabase> = T::DATABASE;
}
impl<L: IgnoresCaller, R: IgnoresCaller> IgnoresCaller for Either<L, R> {}

/// The type of one parameter.
///
/// A constant of the type itself, which depends on a bound, has precedence over that of the trait
/// `AnyParameter`, which each type has. So a type that is no extractor causes no error here: rustc
/// reports it where actix-web needs one.
pub struct Extractor<T: ?Sized>(PhantomData<fn() -> T>);

impl<T: ?Sized> fmt::Debug for Extractor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Extractor")
    }
}

impl<T: IgnoresCaller> Extractor<T> {
    /// The result does not depend on the caller.
    pub const IGNORES_CALLER: Option<Ignored> = Some(Ignored { database: T::DATABASE });
}

impl<T: FromRequest + 'static> Extractor<T> {
    /// Runs the extractor.
    pub const CHECK: Option<Check> = Some(|request| {
        let extracted = T::from_request(request, &mut Payload::None);
        Box::pin(async move { extracted.await.map(drop).map_err(Into::into) })
    });
}

/// Any type: an extractor that may depend on who sends the request, or no extractor.
pub trait AnyParameter {
    /// Nothing is known.
    const IGNORES_CALLER: Option<Ignored> = None;
    /// It cannot be run.
    const CHECK: Option<Check> = None;
}

impl<T: ?Sized> AnyParameter for Extractor<T> {}

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
