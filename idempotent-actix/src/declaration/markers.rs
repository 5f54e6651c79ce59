//! Marker types for the parameters of [`Guard`](crate::__private::Guard).
//!
//! The guard is an extractor, so whatever it needs to know about its handler has to be part of its
//! type.

use std::marker::PhantomData;

use actix_web::http::Method;
use idempotent_http::digest::{BodyForm, ContentTypeForm, QueryForm};

use crate::{
    declaration::{Declaration, source_of},
    key_source::KeySource,
};

/// Whether a key is required.
pub trait Presence: 'static {
    /// Whether a request without a key is refused.
    const REQUIRED: bool;
}

/// Which methods are guarded.
pub trait Methods: 'static {
    /// The guarded methods.
    const METHODS: &'static [Method];
}

/// What of the head of a request counts.
#[derive(Clone, Copy, Debug)]
pub struct HeadForm {
    pub(crate) query: QueryForm,
    pub(crate) content_type: ContentTypeForm,
}

impl HeadForm {
    /// What the attribute of an operation says.
    pub(crate) fn of(operation: &Declaration) -> Self {
        Self {
            query: operation.query.unwrap_or_default(),
            content_type: operation.content_type.unwrap_or_default(),
        }
    }
}

/// How the request contributes to the fingerprint.
pub trait BodyUse: 'static {
    /// The form of the body that is hashed.
    const FORM: BodyForm;
    /// What of the head is hashed.
    const HEAD: HeadForm =
        HeadForm { query: QueryForm::Exact, content_type: ContentTypeForm::Exact };
}

/// `query = "unordered"`, and what `B` states.
#[derive(Debug)]
pub struct Unordered<B>(PhantomData<B>);

impl<B: BodyUse> BodyUse for Unordered<B> {
    const FORM: BodyForm = B::FORM;
    const HEAD: HeadForm = HeadForm { query: QueryForm::Unordered, ..B::HEAD };
}

/// `content_type = "equivalent"`, and what `B` states.
#[derive(Debug)]
pub struct Equivalent<B>(PhantomData<B>);

impl<B: BodyUse> BodyUse for Equivalent<B> {
    const FORM: BodyForm = B::FORM;
    const HEAD: HeadForm = HeadForm { content_type: ContentTypeForm::Equivalent, ..B::HEAD };
}

/// Where the key is.
pub trait KeyOrigin: 'static {
    /// The source that the attribute names; `None` for the header that the application configures.
    ///
    /// # Errors
    /// Fails if the source cannot be found.
    fn source() -> Result<Option<KeySource>, UnknownSource>;
}

/// No source with the id of a handler is registered, or two are.
#[derive(Clone, Copy, Debug)]
pub struct UnknownSource;

/// The key is in the header that the application configures.
#[derive(Debug)]
pub enum ConfiguredHeader {}

impl KeyOrigin for ConfiguredHeader {
    fn source() -> Result<Option<KeySource>, UnknownSource> {
        Ok(None)
    }
}

/// `key_from = "…"`: the source with this id.
#[derive(Debug)]
pub enum KeyFrom<const ID: u128> {}

impl<const ID: u128> KeyOrigin for KeyFrom<ID> {
    fn source() -> Result<Option<KeySource>, UnknownSource> {
        source_of(ID).map(Some).ok_or(UnknownSource)
    }
}

/// `content_type = "ignored"`, and what `B` states.
#[derive(Debug)]
pub struct AnyType<B>(PhantomData<B>);

impl<B: BodyUse> BodyUse for AnyType<B> {
    const FORM: BodyForm = B::FORM;
    const HEAD: HeadForm = HeadForm { content_type: ContentTypeForm::Ignored, ..B::HEAD };
}

/// A single method.
pub trait OneMethod: 'static {
    /// The method.
    const METHOD: Method;
}

/// Marker types of one trait.
macro_rules! markers {
    ($trait:ident $const:ident: $type:ty; $($(#[$doc:meta])* $name:ident = $value:expr;)*) => { $(
        $(#[$doc])*
        #[derive(Debug)]
        pub enum $name {}
        impl $trait for $name {
            const $const: $type = $value;
        }
    )* };
}

markers! { Presence REQUIRED: bool;
    /// `key = "required"`
    Required = true;
    /// `key = "optional"`
    Optional = false;
}

markers! { BodyUse FORM: BodyForm;
    /// `fingerprint = "body"`
    Raw = BodyForm::Raw;
    /// `fingerprint = "json"`
    Json = BodyForm::Json;
    /// `fingerprint = "none"`
    Ignored = BodyForm::Ignored;
    /// `fingerprint = "path::to::function"`, or a part of the JSON
    Whole = BodyForm::Custom;
}

markers! { OneMethod METHOD: Method;
    /// `POST`
    Post = Method::POST;
    /// `PUT`
    Put = Method::PUT;
    /// `PATCH`
    Patch = Method::PATCH;
    /// `DELETE`
    Delete = Method::DELETE;
}

impl<A: OneMethod> Methods for A {
    const METHODS: &'static [Method] = &[A::METHOD];
}
impl<A: OneMethod, B: OneMethod> Methods for (A, B) {
    const METHODS: &'static [Method] = &[A::METHOD, B::METHOD];
}
impl<A: OneMethod, B: OneMethod, C: OneMethod> Methods for (A, B, C) {
    const METHODS: &'static [Method] = &[A::METHOD, B::METHOD, C::METHOD];
}
impl<A: OneMethod, B: OneMethod, C: OneMethod, D: OneMethod> Methods for (A, B, C, D) {
    const METHODS: &'static [Method] = &[A::METHOD, B::METHOD, C::METHOD, D::METHOD];
}
