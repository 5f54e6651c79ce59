//! What `#[idempotent]` expands to. Not part of the public API: only the macro of the same version uses it.

use std::time::Duration;

use actix_web::http::Method;
use idempotent_core::{Abandoned, BodyForm, Policy, RecordRule};

pub use crate::{
    __operation as operation,
    request::Guard,
    run::GuardedAnswer as Answer,
    scope::{scope_by, scope_of},
};
pub use inventory::submit;

/// Whether a key must be there.
pub trait Presence: 'static {
    /// Whether a request without a key is refused.
    const REQUIRED: bool;
}

/// Which methods are guarded.
pub trait Methods: 'static {
    /// All of them.
    const METHODS: &'static [Method];
}

/// How the body counts.
pub trait BodyUse: 'static {
    /// In the fingerprint.
    const FORM: BodyForm;
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
    Ignored = BodyForm::Nothing;
    /// `fingerprint = "path::to::function"`
    Whole = BodyForm::Custom;
}

/// One method.
pub trait OneMethod: 'static {
    /// It.
    const METHOD: Method;
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

/// What the attribute says of one handler.
#[derive(Debug)]
pub struct OperationSpec {
    /// The package that the handler is part of.
    pub package: &'static str,
    /// The `name` key, or nothing.
    pub name: &'static str,
    /// The handler's own name.
    pub handler: &'static str,
    /// The ways to the handler.
    pub routes: &'static [Route],
    /// Whether a request without a key is refused.
    pub key_required: bool,
    /// How the body counts.
    pub fingerprint: BodyForm,
    /// How the key is claimed.
    pub claim: ClaimMode,
    /// How long the handler may work; `None` leaves it to the application.
    pub timeout: Option<Duration>,
    /// The rest.
    pub policy: Policy,
}

/// One way to a handler.
#[derive(Debug)]
pub struct Route {
    /// The method, which is guarded.
    pub method: &'static str,
    /// What the route attribute says; `None` where the handler is routed by hand.
    pub resource: Option<Resource>,
}

/// What a route attribute registers.
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    /// The pattern, without the scopes above it.
    pub path: &'static str,
    /// The name, for `HttpRequest::url_for`.
    pub name: &'static str,
}

/// The route of a method, and of a pattern and a name if there are any.
#[must_use]
pub const fn route(method: &'static str, resource: &[&'static str]) -> Route {
    match *resource {
        [path, name] => Route { method, resource: Some(Resource { path, name }) },
        _ => Route { method, resource: None },
    }
}

/// How a key is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimMode {
    /// `claim = "lease"`: the claim is committed before the work begins.
    Lease,
    /// `claim = "transaction"`: claim, work and answer are one transaction.
    Transaction,
}

/// The policy of an attribute; the times are in milliseconds.
#[must_use]
pub const fn policy(ttl: u64, lease: u64, wait: u64, record: RecordRule, abandoned: Abandoned) -> Policy {
    Policy {
        ttl: Duration::from_millis(ttl),
        lease: Duration::from_millis(lease),
        wait: Duration::from_millis(wait),
        record,
        abandoned,
    }
}

/// The time limit of an attribute, in milliseconds; none where it is zero.
#[must_use]
pub const fn timeout(limit: u64) -> Option<Duration> {
    if limit == 0 { None } else { Some(Duration::from_millis(limit)) }
}

pub use idempotent_core::{Abandoned as AbandonedRule, BodyForm as Fingerprint, RecordRule as Rule};

/// An annotated handler, as the linker collects them for `specification()`.
#[derive(Debug)]
pub struct Registered(pub &'static OperationSpec);

inventory::collect!(Registered);

/// Declares what the attribute says, registers it, and yields a reference to it.
#[doc(hidden)]
#[macro_export]
macro_rules! __operation {
    (
        name: $name:literal, handler: $handler:literal,
        routes: [$(($method:literal $(, $path:literal, $resource:literal)?)),+ $(,)?],
        ttl: $ttl:literal, lease: $lease:literal, wait: $wait:literal, timeout: $timeout:literal,
        key: $key:ident, fingerprint: $fingerprint:ident, record: $record:ident, abandoned: $abandoned:ident,
        claim: $claim:ident $(,)?
    ) => {{
        static OPERATION: $crate::__private::OperationSpec = $crate::__private::OperationSpec {
            package: env!("CARGO_PKG_NAME"),
            name: $name,
            handler: $handler,
            routes: &[$($crate::__private::route($method, &[$($path, $resource)?])),+],
            key_required: <$crate::__private::$key as $crate::__private::Presence>::REQUIRED,
            fingerprint: $crate::__private::Fingerprint::$fingerprint,
            claim: $crate::__private::ClaimMode::$claim,
            timeout: $crate::__private::timeout($timeout),
            policy: $crate::__private::policy(
                $ttl, $lease, $wait,
                $crate::__private::Rule::$record,
                $crate::__private::AbandonedRule::$abandoned,
            ),
        };
        $crate::__private::submit! { $crate::__private::Registered(&OPERATION) }
        &OPERATION
    }};
}
