//! What `#[idempotent]` expands to. Only the macro of the same version uses it.

pub use crate::{
    __operation as operation,
    outcome::Replayable,
    request::Guard,
    run::GuardedResponse as Response,
    scope::{scope_by, scope_of},
    spec::{
        ClaimMode, OperationSpec, Registered, Resource, Route, duration,
        markers::{
            BodyUse, Delete, Ignored, Json, Methods, OneMethod, Optional, Patch, Post, Presence,
            Put, Raw, Required, Whole,
        },
        route,
    },
};
pub use idempotent_core::{
    Abandoned as AbandonedRule, BodyForm as Fingerprint, RecordRule as Rule,
};
pub use inventory::submit;

/// Declares the specification of a handler, registers it, and evaluates to a reference to it.
#[doc(hidden)]
#[macro_export]
macro_rules! __operation {
    (
        name: $name:literal, handler: $handler:literal,
        routes: [$(($method:literal $(, $path:literal, $resource:literal)?)),+ $(,)?],
        ttl: [$($ttl:literal)?], lease: [$($lease:literal)?], wait: [$($wait:literal)?],
        timeout: [$($timeout:literal)?],
        record: [$($record:ident)?], abandoned: [$($abandoned:ident)?],
        point_of_no_return: $point_of_no_return:literal,
        key: $key:ident, fingerprint: $fingerprint:ident, claim: $claim:ident $(,)?
    ) => {{
        static OPERATION: $crate::__private::OperationSpec = $crate::__private::OperationSpec {
            package: env!("CARGO_PKG_NAME"),
            name: $name,
            handler: $handler,
            routes: &[$($crate::__private::route($method, &[$($path, $resource)?])),+],
            key_required: <$crate::__private::$key as $crate::__private::Presence>::REQUIRED,
            fingerprint: $crate::__private::Fingerprint::$fingerprint,
            claim: $crate::__private::ClaimMode::$claim,
            timeout: $crate::__private::duration(&[$($timeout)?]),
            ttl: $crate::__private::duration(&[$($ttl)?]),
            lease: $crate::__private::duration(&[$($lease)?]),
            wait: $crate::__private::duration(&[$($wait)?]),
            record: $crate::__optional!($($crate::__private::Rule::$record)?),
            abandoned: $crate::__optional!($($crate::__private::AbandonedRule::$abandoned)?),
            point_of_no_return: $point_of_no_return,
        };
        $crate::__private::submit! { $crate::__private::Registered(&OPERATION) }
        &OPERATION
    }};
}

/// `Some` of an expression, or `None` without one.
#[doc(hidden)]
#[macro_export]
macro_rules! __optional {
    () => {
        ::core::option::Option::None
    };
    ($value:expr) => {
        ::core::option::Option::Some($value)
    };
}
