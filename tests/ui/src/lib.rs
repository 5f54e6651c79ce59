//! Compiles the examples in the documentation of `#[idempotent]`, which cannot depend on
//! `idempotent-actix` where they are written.

#[cfg(doctest)]
#[doc = include_str!("../../../idempotent-macros/src/attribute.md")]
pub struct AttributeDocs;
