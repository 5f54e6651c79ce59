//! What `#[idempotent]` expands to. Only the macro of the same version uses it.

pub use crate::{
    __key_from as key_from, __operation as operation,
    key_source::{KeySource, RegisteredSource, key_by, source_id},
    outcome::Replayable,
    request::Guard,
    run::GuardedResponse as Response,
    scope::{scope_by, scope_of, scope_of_request},
    spec::{
        ClaimMode, InFlightRule, OperationSpec, Registered, RequestScope, Resource, Route,
        duration,
        markers::{
            BodyUse, ConfiguredHeader, Delete, Ignored, Json, KeyFrom, KeyOrigin, Methods,
            OneMethod, Optional, Patch, Post, Presence, Put, Raw, Required, UnknownSource, Whole,
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
        key: $key:ident, fingerprint: $fingerprint:ident, claim: $claim:ident,
        scope: [$($from:ident($scope:expr))?] $(, key_from: $source:ident($value:expr))?
        $(, in_flight: $in_flight:ident)? $(, point_of_no_return: $point:literal)? $(,)?
    ) => {{
        static OPERATION: $crate::__private::OperationSpec = $crate::__private::OperationSpec {
            package: env!("CARGO_PKG_NAME"),
            name: $name,
            handler: $handler,
            routes: &[$($crate::__private::route($method, &[$($path, $resource)?])),+],
            key_required: <$crate::__private::$key as $crate::__private::Presence>::REQUIRED,
            key_from: $crate::__optional!($($crate::__private::RegisteredSource {
                id: $crate::__source_id!($source($value) in $handler),
                source: $crate::__key_source!($source $value),
            })?),
            fingerprint: $crate::__private::Fingerprint::$fingerprint,
            claim: $crate::__private::ClaimMode::$claim,
            timeout: $crate::__private::duration(&[$($timeout)?]),
            ttl: $crate::__private::duration(&[$($ttl)?]),
            lease: $crate::__private::duration(&[$($lease)?]),
            wait: $crate::__private::duration(&[$($wait)?]),
            record: $crate::__optional!($($crate::__private::Rule::$record)?),
            abandoned: $crate::__optional!($($crate::__private::AbandonedRule::$abandoned)?),
            point_of_no_return: $crate::__optional!($($point)?),
            scope: $crate::__optional!($($crate::__private::RequestScope::$from($scope))?),
            in_flight: $crate::__optional!($($crate::__private::InFlightRule::$in_flight)?),
        };
        $crate::__private::submit! { $crate::__private::Registered(&OPERATION) }
        &OPERATION
    }};
}

/// The type parameter of a guard whose key has this source.
#[doc(hidden)]
#[macro_export]
macro_rules! __key_from {
    ($($source:tt)*) => { $crate::__private::KeyFrom<{ $crate::__source_id!($($source)*) }> };
}

/// The id of a source. A handler has one, so its place identifies its function: the path of the
/// function may name another one elsewhere.
#[doc(hidden)]
#[macro_export]
macro_rules! __source_id {
    (Function($function:expr) in $handler:literal) => {
        $crate::__private::source_id(::core::concat!(
            ::core::module_path!(),
            " ",
            ::core::line!(),
            ":",
            ::core::column!(),
            " ",
            $handler
        ))
    };
    ($place:ident($name:expr) in $handler:literal) => {
        $crate::__private::source_id(::core::concat!(::core::stringify!($place), ":", $name))
    };
}

/// Evaluates to a `KeySource`.
#[doc(hidden)]
#[macro_export]
macro_rules! __key_source {
    (Function $function:expr) => {
        $crate::__private::KeySource::Function(|request, body| {
            $crate::__private::key_by($function, request, body)
        })
    };
    ($place:ident $name:expr) => {
        $crate::__private::KeySource::$place($name)
    };
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
