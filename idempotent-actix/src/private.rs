//! What `#[idempotent]` expands to. Only the macro of the same version uses it.

pub use crate::{
    __key_from as key_from, __key_source as key_source, __operation as operation,
    __source_id as source_id,
    declaration::{
        ClaimMode, Declaration, Declared, Parameter, RequestScope, Resource, Route, crate_of,
        declaration,
        markers::{
            AnyType, BodyUse, ConfiguredHeader, Delete, Equivalent, HeadForm, Ignored, Json,
            KeyFrom, KeyOrigin, Methods, OneMethod, Optional, Patch, Post, Presence, Put, Raw,
            Required, UnknownSource, Unordered, Whole,
        },
        route, rules,
    },
    key_source::{KeySource, key_by, source_id},
    outcome::Replayable,
    request::Guard,
    run::GuardedResponse as Response,
    scope::{
        extractors::{AnyParameter, Extractor, InPath},
        scope_by, scope_function, scope_of, scope_of_request,
    },
};
pub use idempotent_http::{
    digest::{BodyForm as Fingerprint, JsonPart},
    key::KeyPlace,
};
pub use inventory::submit;
pub use std::option::Option::{None, Some};

/// Declares the attribute of a handler, registers it, and evaluates to a reference to it.
#[doc(hidden)]
#[macro_export]
macro_rules! __operation {
    (
        package: $package:expr, handler: $handler:literal,
        routes: [$(($method:literal $(, $path:literal, $resource:literal)?)),+ $(,)?],
        scope: [$($scope:tt)*],
        parameters: [$($(#[$cfg:meta])* $parameter:ty),* $(,)?] $(with $tx:ty)?,
        set: [$($set:tt)*] $(,)?
    ) => {{
        static OPERATION: $crate::__private::Declaration = $crate::__private::declaration(
            $package,
            ::core::module_path!(),
            $handler,
            &[$($crate::__private::route($method, &[$($path, $resource)?])),+],
            // Before the scope: after its conditions, rustc does not promote the slice to a static.
            $crate::__parameters!($($(#[$cfg])* $parameter),* $(; $tx)?),
            $crate::__request_scope!($($scope)*),
        )
        $($set)*;
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
        $scope
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

/// Evaluates to the parameters of a handler. After the semicolon: a `Tx` in one that is a tuple,
/// whose extractor runs as that of the tuple.
#[doc(hidden)]
#[macro_export]
macro_rules! __parameters {
    () => { &[] };
    ($($(#[$cfg:meta])* $type:ty),* $(; $tx:ty)?) => {{
        use $crate::__private::AnyParameter as _;
        &[
            $($(#[$cfg])* $crate::__private::Parameter::new(
                $crate::__private::Extractor::<$type>::IGNORES_CALLER,
                $crate::__private::Extractor::<$type>::CHECK,
            ),)*
            $($crate::__private::Parameter::new(
                $crate::__private::Extractor::<$tx>::IGNORES_CALLER,
                $crate::__private::None,
            ),)?
        ]
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
    (Function($function:expr)) => {
        $crate::__private::KeySource::Function(|request, body| {
            $crate::__private::key_by($function, request, body)
        })
    };
    ($place:ident($name:expr)) => {
        $crate::__private::KeySource::Place($crate::__private::KeyPlace::$place($name))
    };
}
