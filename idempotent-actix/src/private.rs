//! What `#[idempotent]` expands to. Only the macro of the same version uses it.

pub use crate::{
    __key_from as key_from, __operation as operation,
    declaration::{
        Check, ClaimMode, Declaration, Declared, ExtractsNoTx, ExtractsTx, RequestScope, Resource,
        Route, declaration, first_database,
        markers::{
            AnyType, BodyUse, ConfiguredHeader, Delete, Equivalent, HeadForm, Ignored, Json,
            KeyFrom, KeyOrigin, Methods, OneMethod, Optional, Patch, Post, Presence, Put, Raw,
            Required, UnknownSource, Unordered, Whole,
        },
        milliseconds, package, route, rules,
    },
    key_source::{DeclaredSource, KeySource, key_by, source_id},
    outcome::Replayable,
    request::Guard,
    run::GuardedResponse as Response,
    scope::{
        extractors::{Extractor, InPath, IsNoExtractor, RunsExtractor},
        scope_by, scope_of, scope_of_request,
    },
};
pub use idempotent_http::{
    digest::{BodyForm as Fingerprint, JsonPart},
    key::KeyPlace,
};
pub use inventory::submit;
pub use std::option::Option::{None, Some};

/// Declares the specification of a handler, registers it, and evaluates to a reference to it.
#[doc(hidden)]
#[macro_export]
macro_rules! __operation {
    (
        name: $name:literal, handler: $handler:literal,
        routes: [$(($method:literal $(, $path:literal, $resource:literal)?)),+ $(,)?],
        durations: [$($duration:ident $milliseconds:literal),*],
        rules: [$($rule:ident $kind:ident $value:ident),*],
        key: $key:ident, fingerprint: $fingerprint:ident, claim: $claim:ident,
        scope: [$($scope:tt)*], extractors: [$($(#[$cfg:meta])* $extractor:ty),* $(,)?]
        $(, key_from: $source:ident($place:expr))? $(, part: $part:ident[$($pointer:literal),*])?
        $(, tx: $tx:ty)? $(,)?
    ) => {{
        // Fields that the attribute does not set would take rustc time in each handler.
        static OPERATION: $crate::__private::Declaration = $crate::__private::Declaration {
            routes: &[$($crate::__private::route($method, &[$($path, $resource)?])),+],
            $(key_from: $crate::__private::Some($crate::__private::DeclaredSource {
                id: $crate::__source_id!($source($place) in $handler),
                source: $crate::__key_source!($source $place),
            }),)?
            $(fingerprint: $crate::__private::Fingerprint::JsonPart(
                $crate::__private::JsonPart::$part(&[$($pointer),*]),
            ),)?
            $($duration: $crate::__private::milliseconds($milliseconds),)*
            $($rule: $crate::__private::Some($crate::__private::rules::$kind::$value),)*
            scope: $crate::__request_scope!($($scope)*),
            extractors: $crate::__extractors!($($(#[$cfg])* $extractor),*),
            transaction: $crate::__transaction!($($(#[$cfg])* $extractor,)* $($tx)?),
            ..$crate::__private::declaration(
                $crate::__private::package(
                    ::core::option_env!("CARGO_PKG_NAME"),
                    ::core::module_path!(),
                ),
                ::core::module_path!(),
                $name,
                $handler,
                <$crate::__private::$key as $crate::__private::Presence>::REQUIRED,
                $crate::__private::Fingerprint::$fingerprint,
                $crate::__private::ClaimMode::$claim,
            )
        };
        $crate::__private::submit! { $crate::__private::Declared(&OPERATION) }
        &OPERATION
    }};
}

/// Evaluates to an `Option<RequestScope>`. A lookup has no value for a parameter of the path.
#[doc(hidden)]
#[macro_export]
macro_rules! __request_scope {
    () => {
        $crate::__private::None
    };
    (Alternatives $($(#[$cfg:meta])* ($($scope:tt)*))+) => {{
        $($(#[$cfg])* let scope = $crate::__request_scope!($($scope)*);)+
        scope
    }};
    (Function($scope:expr)) => {
        $crate::__private::Some($crate::__private::RequestScope::Function($scope))
    };
    (Parameter($scope:expr) of $type:ty) => {{
        use $crate::__private::InPath as _;
        if $crate::__private::Extractor::<$type>::IN_PATH {
            $crate::__private::None
        } else {
            $crate::__private::Some($crate::__private::RequestScope::Parameter($scope))
        }
    }};
    (Found Parameter($scope:expr) of $type:ty) => {{
        use $crate::__private::InPath as _;
        ::core::assert!(
            !$crate::__private::Extractor::<$type>::IN_PATH,
            "`in_flight = \"poll\"` needs a scope that a lookup can find, and a lookup has no \
             value for a parameter of the path; write `in_flight = \"conflict\"`, or another \
             `scope`"
        );
        $crate::__private::Some($crate::__private::RequestScope::Parameter($scope))
    }};
}

/// Evaluates to the checks of a handler's extractors.
#[doc(hidden)]
#[macro_export]
macro_rules! __extractors {
    () => { &[] };
    ($($(#[$cfg:meta])* $type:ty),+) => {{
        use $crate::__private::{IsNoExtractor as _, RunsExtractor as _};
        &[$($(#[$cfg])* |request| (&$crate::__private::Extractor::<$type>::NEW).check(request)),+]
    }};
}

/// Evaluates to the function that finds the database of a handler's `Tx`.
#[doc(hidden)]
#[macro_export]
macro_rules! __transaction {
    () => { $crate::__private::None };
    ($($(#[$cfg:meta])* $type:ty),+ $(,)?) => {
        $crate::__private::Some(|| {
            #[allow(unused_imports)]
            use $crate::__private::ExtractsNoTx as _;
            $crate::__private::first_database(&[
                $($(#[$cfg])* $crate::__private::ExtractsTx::<$type>::TYPE.database()),+
            ])
        })
    };
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
        $crate::__private::KeySource::Place($crate::__private::KeyPlace::$place($name))
    };
}
