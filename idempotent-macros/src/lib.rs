//! The attribute macro of [`idempotent-actix`](https://docs.rs/idempotent-actix), which re-exports
//! it. Depend on that crate.
//!
//! The macro generates little code: everything that can be a function is one in the runtime crate,
//! and the expansion calls it. Each module uses only those after it: `expand` → `validate` (errors)
//! → `model` (handler, routes) → `parse` (keys) → `errors` (the collector).

#![cfg_attr(docsrs, feature(doc_cfg))]

mod errors;
mod expand;
mod model;
mod parse;
#[cfg(test)]
mod tests;
mod validate;

use proc_macro::TokenStream;

#[doc = include_str!("attribute.md")]
#[proc_macro_attribute]
pub fn idempotent(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand::idempotent(attribute.into(), item.into()).into()
}
