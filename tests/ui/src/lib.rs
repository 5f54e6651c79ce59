//! Compiles the examples in the documentation of `#[idempotent]`. They need `idempotent-actix`, on
//! which `idempotent-macros` cannot depend.

#[cfg(doctest)]
#[doc = include_str!("../../../idempotent-macros/src/attribute.md")]
pub struct AttributeDocs;
